// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Elements of every cache type on the host, for tests.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <cstring>

#include "pagedecode/types.h"

namespace pagedecode::test {

inline double load_value(DType type, const void* at) {
  switch (type) {
    case DType::kFloat32: {
      float x;
      std::memcpy(&x, at, 4);
      return x;
    }
    case DType::kFloat16: {
      __half x;
      std::memcpy(&x, at, 2);
      return __half2float(x);
    }
    case DType::kBFloat16: {
      __nv_bfloat16 x;
      std::memcpy(&x, at, 2);
      return __bfloat162float(x);
    }
    case DType::kFloat8E4M3: {
      __nv_fp8_e4m3 x;
      std::memcpy(&x, at, 1);
      return static_cast<float>(x);
    }
    case DType::kFloat8E5M2: {
      __nv_fp8_e5m2 x;
      std::memcpy(&x, at, 1);
      return static_cast<float>(x);
    }
    default:
      return *static_cast<const std::int8_t*>(at);
  }
}

inline void store_value(DType type, void* at, float x) {
  switch (type) {
    case DType::kFloat32:
      std::memcpy(at, &x, 4);
      break;
    case DType::kFloat16: {
      const __half y = __float2half(x);
      std::memcpy(at, &y, 2);
      break;
    }
    case DType::kBFloat16: {
      const __nv_bfloat16 y = __float2bfloat16(x);
      std::memcpy(at, &y, 2);
      break;
    }
    case DType::kFloat8E4M3: {
      const __nv_fp8_e4m3 y(x);
      std::memcpy(at, &y, 1);
      break;
    }
    case DType::kFloat8E5M2: {
      const __nv_fp8_e5m2 y(x);
      std::memcpy(at, &y, 1);
      break;
    }
    default:
      *static_cast<std::int8_t*>(at) = static_cast<std::int8_t>(x * 40.0f);
  }
}

}  // namespace pagedecode::test
