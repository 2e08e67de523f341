// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Non-owning views of the caller's arrays: what every entry point takes.
#pragma once

#include <cstdint>

#include "pagedecode/export.h"

namespace pagedecode {

enum class DType : std::uint8_t {
  kFloat32,
  kFloat16,
  kBFloat16,
  kFloat8E4M3,  // e4m3fn: no infinities, largest 448
  kFloat8E5M2,  // largest finite 57344
  kInt8,
  kUInt8,
  kBool,
  kInt32,
  kInt64,
  kUInt32,
  // No entry point takes the rest: they are here so that an error can name them.
  kFloat64,
  kInt16,
  kUInt16,
  kUInt64,
  kComplex64,
  kComplex128,
};

// Bytes of one element; 0 of what is no DType.
PAGEDECODE_API int size_of(DType dtype);
// The field's name: "float32", "float8_e4m3fn", ...; "unknown" of what is no DType.
PAGEDECODE_API const char* name_of(DType dtype);

enum class DeviceType : std::uint8_t { kCpu, kCuda };

struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;  // CUDA ordinal; 0 on the CPU

  friend bool operator==(Device a, Device b) { return a.type == b.type && a.index == b.index; }
  friend bool operator!=(Device a, Device b) { return !(a == b); }
};

inline constexpr int kMaxDims = 4;

// A strided view. Strides count elements and may be negative or zero; those of dimensions of size
// 0 or 1 mean nothing. `data` may be null when the view is empty.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  Device device;
  int ndim = 0;
  std::int64_t shape[kMaxDims] = {};
  std::int64_t strides[kMaxDims] = {};
  bool read_only = false;

  std::int64_t size() const {
    std::int64_t n = 1;
    for (int i = 0; i < ndim; ++i) n *= shape[i];
    return n;
  }
};

enum class KVLayout : std::uint8_t {
  kNHD,  // [num_pages, page_size, Hkv, D]
  kHND,  // [num_pages, Hkv, page_size, D]
};

enum class LseBase : std::uint8_t { kE, k2 };

}  // namespace pagedecode
