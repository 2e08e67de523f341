// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// What every check is made of. Each function names the argument, says what it got and what it
// wants; strings are built on failure only.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "pagedecode/types.h"
#include "problem.h"

namespace pagedecode {

inline constexpr std::int64_t kMaxCount = INT32_MAX;  // of rows, sequences, table entries, tokens
// Of one view, in elements: of 16 bytes at most, so that offsets in bytes fit, too.
inline constexpr std::int64_t kMaxExtent = std::int64_t{1} << 59;

// "float32 [2, 3] on cpu"; "[2, 3]"; "cuda:1".
std::string describe(const Tensor& t);
std::string shape_text(const Tensor& t);
std::string device_text(Device device);
std::string text(double x);

[[noreturn]] void throw_argument(const char* name, const std::string& got, const std::string& want);
[[noreturn]] void throw_type(const char* name, const std::string& got, const std::string& want);
[[noreturn]] void throw_unsupported(const char* name, const std::string& got,
                                    const std::string& want);

// The stride that means something: 0 for dimensions of size 0 or 1.
inline std::int64_t stride_of(const Tensor& t, int dim) {
  return t.shape[dim] > 1 ? t.strides[dim] : 0;
}

inline bool is_empty(const Tensor& t) {
  for (int i = 0; i < t.ndim; ++i) {
    if (t.shape[i] == 0) return true;
  }
  return false;
}

// One dimension of a wanted shape: a size, and the name that it goes by in messages.
struct Dim {
  const char* name;
  std::int64_t size;  // kAny: not fixed
};
inline constexpr std::int64_t kAny = -1;

// A view that can be: 0 to kMaxDims dimensions of 0 or more, on a device that has a name, all
// offsets and counts of elements below kMaxExtent. Nothing else may be read of a view that has not
// passed.
void check_view(const char* name, const Tensor& t);
void check_shape(const char* name, const Tensor& t, std::initializer_list<Dim> dims);
// The first check of every view: begins with check_view.
void check_dtype(const char* name, const Tensor& t, std::initializer_list<DType> dtypes);
void check_device(const char* name, const Tensor& t, Device device);
void check_alignment(const char* name, const Tensor& t, std::int64_t bytes);
// Data not null unless empty, aligned to its elements.
void check_data(const char* name, const Tensor& t);
// Rows of D elements: check_data, and the last dimension contiguous. On CUDA rows aligned to 16
// bytes (8 for 1-byte elements with D % 16 == 8), strides positive.
void check_rows(const char* name, const Tensor& t);
void check_writable(const char* name, const Tensor& t);
// `out` may neither reach a byte twice nor share one with `other`.
void check_self_overlap(const char* name, const Tensor& t);
void check_overlap(const char* name, const Tensor& t, const char* other_name, const Tensor& other);

// int32 or int64, of the shape given, on the device.
IndexArray check_indices(const char* name, const Tensor& t, Dim dim, Device device);
FloatArray check_floats(const char* name, const Tensor& t, Dim dim, Device device);
void check_index_tensor(const char* name, const Tensor& t, std::initializer_list<Dim> dims,
                        Device device);
void check_lse_base(LseBase base);
// A product of sizes, INT64_MAX where it does not fit.
std::int64_t saturating_product(std::int64_t a, std::int64_t b);

}  // namespace pagedecode
