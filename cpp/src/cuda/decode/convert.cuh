// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Exact conversion of 1-byte cache elements to half precision, two at a time, in registers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "pagedecode/types.h"

namespace pagedecode::cuda {

// Two e4m3fn in the low half of x.
__device__ __forceinline__ std::uint32_t half2_from_e4m3(std::uint32_t x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint32_t y;
  const auto low = static_cast<std::uint16_t>(x);
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(y) : "h"(low));
  return y;
#else
  // Exponent and mantissa land in half's fields 8 binades low; the product by 2^8 is exact, for
  // subnormals too. 0x7f is NaN, which the product cannot know.
  const std::uint32_t wide = __byte_perm(x, 0, 0x1404);  // bytes to the high halves
  const std::uint32_t magnitude = (wide & 0x7f007f00u) >> 1;
  __half2 h;
  const std::uint32_t bits = magnitude | (wide & 0x80008000u);
  memcpy(&h, &bits, 4);
  h = __hmul2(h, __float2half2_rn(256.0f));
  std::uint32_t y;
  memcpy(&y, &h, 4);
  if ((magnitude & 0xffffu) == 0x3f80u) y |= 0x7fffu;
  if ((magnitude >> 16) == 0x3f80u) y |= 0x7fff0000u;
  return y;
#endif
}

// Four e4m3fn. The instruction reads either half of a register, if it is named so.
__device__ __forceinline__ void half2s_from_e4m3(std::uint32_t x, std::uint32_t& low,
                                                 std::uint32_t& high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\ncvt.rn.f16x2.e4m3x2 %0, l;\n"
      "cvt.rn.f16x2.e4m3x2 %1, h;\n}"
      : "=r"(low), "=r"(high)
      : "r"(x));
#else
  low = half2_from_e4m3(x & 0xffffu);
  high = half2_from_e4m3(x >> 16);
#endif
}

// e5m2 is the high byte of a half.
__device__ __forceinline__ std::uint32_t half2_from_e5m2(std::uint32_t x) {
  return __byte_perm(x, 0, 0x1404);
}

// 1024 + (x + 128) is a half whose low byte is x + 128.
__device__ __forceinline__ std::uint32_t half2_from_int8(std::uint32_t x) {
  const std::uint32_t bits = __byte_perm(x ^ 0x8080u, 0x64u, 0x4140);
  __half2 h;
  memcpy(&h, &bits, 4);
  h = __hsub2(h, __float2half2_rn(1152.0f));
  std::uint32_t y;
  memcpy(&y, &h, 4);
  return y;
}

// out[2 i], out[2 i + 1] = low, high half of in[i]. One uniform branch for all of them: the format
// is a run-time value, so that three types share an instance.
template <int kCount>
__device__ __forceinline__ void half2_from_bytes(DType format, const std::uint32_t (&in)[kCount],
                                                 std::uint32_t (&out)[2 * kCount]) {
  if (format == DType::kFloat8E4M3) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) half2s_from_e4m3(in[i], out[2 * i], out[2 * i + 1]);
  } else if (format == DType::kFloat8E5M2) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      out[2 * i] = half2_from_e5m2(in[i]);
      out[2 * i + 1] = half2_from_e5m2(in[i] >> 16);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      out[2 * i] = half2_from_int8(in[i] & 0xffffu);
      out[2 * i + 1] = half2_from_int8(in[i] >> 16);
    }
  }
}

// Of a part of longer arrays.
template <int kCount>
__device__ __forceinline__ void half2_from_bytes_at(DType format, const std::uint32_t* in,
                                                    std::uint32_t* out) {
  half2_from_bytes(format, *reinterpret_cast<const std::uint32_t(*)[kCount]>(in),
                   *reinterpret_cast<std::uint32_t(*)[2 * kCount]>(out));
}

// One element of any cache type.
__device__ __forceinline__ float float_from(DType type, const void* at) {
  switch (type) {
    case DType::kFloat16:
      return __half2float(*static_cast<const __half*>(at));
    case DType::kBFloat16:
      return __bfloat162float(*static_cast<const __nv_bfloat16*>(at));
    case DType::kFloat32:
      return *static_cast<const float*>(at);
    default:
      break;
  }
  const std::uint32_t in[1] = {*static_cast<const std::uint8_t*>(at)};
  std::uint32_t out[2];
  half2_from_bytes<1>(type, in, out);
  __half2 h;
  memcpy(&h, &out[0], 4);
  return __low2float(h);
}

}  // namespace pagedecode::cuda
