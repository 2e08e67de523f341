// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Eight elements at a time, as float32, of any dtype that the operations beside decode read or
// write. The dtype is a run-time value: these kernels move bytes, a uniform branch is free.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "pagedecode/types.h"

namespace pagedecode::cuda {

constexpr int kVector = 8;  // elements

// Elements are 2 (float16, bfloat16) or 4 bytes (float32).
__device__ __forceinline__ float load_float(const void* data, DType dtype, std::int64_t at) {
  switch (dtype) {
    case DType::kFloat16:
      return __half2float(static_cast<const __half*>(data)[at]);
    case DType::kBFloat16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[at]);
    default:
      return static_cast<const float*>(data)[at];
  }
}

__device__ __forceinline__ float half_of(std::uint32_t word, int half) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(word >> (16 * half))));
}

__device__ __forceinline__ float bfloat_of(std::uint32_t word, int half) {
  return __uint_as_float(half ? word & 0xffff0000u : word << 16);
}

// The bytes of a vector as they lie in memory: 16 of a 2-byte type, 32 of float32.
struct RawVector {
  uint4 low;
  uint4 high;  // float32 only
};

// From element `at`, whose address is a multiple of 16 bytes.
__device__ __forceinline__ RawVector load_raw(const void* data, DType dtype, std::int64_t at) {
  const int size = dtype == DType::kFloat32 ? 4 : 2;
  const auto* from = reinterpret_cast<const uint4*>(static_cast<const char*>(data) + at * size);
  RawVector raw;
  raw.low = from[0];
  raw.high = dtype == DType::kFloat32 ? from[1] : uint4{};
  return raw;
}

__device__ __forceinline__ void widen(const RawVector& raw, DType dtype, float (&x)[kVector]) {
  const std::uint32_t words[8] = {raw.low.x,  raw.low.y,  raw.low.z,  raw.low.w,
                                  raw.high.x, raw.high.y, raw.high.z, raw.high.w};
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    x[i] = dtype == DType::kFloat32   ? __uint_as_float(words[i])
           : dtype == DType::kFloat16 ? half_of(words[i / 2], i % 2)
                                      : bfloat_of(words[i / 2], i % 2);
  }
}

// x[0..8) from element `at`; `aligned`: the vector's address is a multiple of 16 bytes.
__device__ __forceinline__ void load_vector(const void* data, DType dtype, std::int64_t at,
                                            bool aligned, float (&x)[kVector]) {
  if (aligned) {
    widen(load_raw(data, dtype, at), dtype, x);
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i) x[i] = load_float(data, dtype, at + i);
  }
}

// x as `dtype`, rounded to nearest even, in the low bits. e4m3 saturates at 448, e5m2 at 57344,
// int8 at +-127; NaN stays NaN in float types and is 0 in int8.
__device__ __forceinline__ std::uint32_t to_bits(float x, DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return __half_as_ushort(__float2half_rn(x));
    case DType::kBFloat16:
      return __bfloat16_as_ushort(__float2bfloat16_rn(x));
    case DType::kFloat8E4M3:
      return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
    case DType::kFloat8E5M2:
      return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2);
    case DType::kInt8: {
      const int rounded = isnan(x) ? 0 : __float2int_rn(fminf(fmaxf(x, -127.0f), 127.0f));
      return static_cast<std::uint32_t>(rounded) & 0xffu;
    }
    default:
      return __float_as_uint(x);
  }
}

__device__ __forceinline__ int bytes_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return 4;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    default:
      return 1;
  }
}

__device__ __forceinline__ void store_element(void* data, DType dtype, std::int64_t at, float x) {
  const std::uint32_t bits = to_bits(x, dtype);
  switch (bytes_of(dtype)) {
    case 4:
      static_cast<std::uint32_t*>(data)[at] = bits;
      break;
    case 2:
      static_cast<std::uint16_t*>(data)[at] = static_cast<std::uint16_t>(bits);
      break;
    default:
      static_cast<std::uint8_t*>(data)[at] = static_cast<std::uint8_t>(bits);
  }
}

// The bits of one element.
__device__ __forceinline__ void copy_element(void* to, std::int64_t to_at, const void* from,
                                             std::int64_t from_at, DType dtype) {
  switch (bytes_of(dtype)) {
    case 4:
      static_cast<std::uint32_t*>(to)[to_at] = static_cast<const std::uint32_t*>(from)[from_at];
      break;
    case 2:
      static_cast<std::uint16_t*>(to)[to_at] = static_cast<const std::uint16_t*>(from)[from_at];
      break;
    default:
      static_cast<std::uint8_t*>(to)[to_at] = static_cast<const std::uint8_t*>(from)[from_at];
  }
}

// The bits of eight elements of 2 or 4 bytes, both addresses multiples of 16 bytes.
__device__ __forceinline__ void copy_vector(void* to, std::int64_t to_at, const void* from,
                                            std::int64_t from_at, DType dtype) {
  const std::int64_t bytes = bytes_of(dtype);
  auto* const target = reinterpret_cast<uint4*>(static_cast<char*>(to) + to_at * bytes);
  const auto* const source =
      reinterpret_cast<const uint4*>(static_cast<const char*>(from) + from_at * bytes);
  target[0] = source[0];
  if (bytes == 4) target[1] = source[1];
}

// x[0..8) to element `at`; `aligned`: the vector's address is a multiple of 16 bytes, of 8 for
// 1-byte types.
__device__ __forceinline__ void store_vector(void* data, DType dtype, std::int64_t at, bool aligned,
                                             const float (&x)[kVector]) {
  if (!aligned) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) store_element(data, dtype, at + i, x[i]);
    return;
  }
  std::uint32_t b[kVector];
#pragma unroll
  for (int i = 0; i < kVector; ++i) b[i] = to_bits(x[i], dtype);
  switch (bytes_of(dtype)) {
    case 4: {
      auto* to = reinterpret_cast<uint4*>(static_cast<float*>(data) + at);
      to[0] = make_uint4(b[0], b[1], b[2], b[3]);
      to[1] = make_uint4(b[4], b[5], b[6], b[7]);
      break;
    }
    case 2:
      *reinterpret_cast<uint4*>(static_cast<std::uint16_t*>(data) + at) =
          make_uint4(b[0] | b[1] << 16, b[2] | b[3] << 16, b[4] | b[5] << 16, b[6] | b[7] << 16);
      break;
    default:
      *reinterpret_cast<uint2*>(static_cast<std::uint8_t*>(data) + at) = make_uint2(
          b[0] | b[1] << 8 | b[2] << 16 | b[3] << 24, b[4] | b[5] << 8 | b[6] << 16 | b[7] << 24);
  }
}

}  // namespace pagedecode::cuda
