// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The table of one instruction level: which steps serve which dtypes. Included by
// decode_<level>.cpp after the headers of that level; everything here has internal linkage.
#pragma once

#include "cpu/isa/fma.h"

namespace {

using pagedecode::cpu::Level;
using pagedecode::cpu::Variant;

template <DType kType>
struct OfType {
  static constexpr DType kValue = kType;
};

// f(OfType<t>{}) of a cache or query type.
template <class F>
auto of_type(DType t, F f) {
  switch (t) {
    case DType::kFloat32:
      return f(OfType<DType::kFloat32>{});
    case DType::kFloat16:
      return f(OfType<DType::kFloat16>{});
    case DType::kBFloat16:
      return f(OfType<DType::kBFloat16>{});
    case DType::kFloat8E4M3:
      return f(OfType<DType::kFloat8E4M3>{});
    case DType::kFloat8E5M2:
      return f(OfType<DType::kFloat8E5M2>{});
    default:
      return f(OfType<DType::kInt8>{});
  }
}

Variant fma_variant(DType q, DType k, DType v) {
  Variant r;
  r.name = "fma";
  r.load_q = of_type(q, [](auto t) { return &fma_load_q<decltype(t)::kValue>; });
  r.stage_k = of_type(k, [](auto t) { return &fma_stage_k<decltype(t)::kValue>; });
  r.logits = &fma_logits;
  r.softmax = &softmax;
  r.stage_v = of_type(v, [](auto t) { return &fma_stage_v<decltype(t)::kValue>; });
  r.accumulate = &fma_accumulate;
  return r;
}

template <DType kType>
void store_row_as(const float* x, float scale, int count, char* dst) {
  constexpr int kBytes = bytes_of_type(kType);
  constexpr int kW = Simd::kWidth;
  int d = 0;
  for (; d + kW <= count; d += kW) {
    Simd::store_as<kType>(dst + d * kBytes, Simd::mul(Simd::load(x + d), Simd::set1(scale)));
  }
  if (d < count) {
    char part[kW * kBytes];
    Simd::store_as<kType>(part, Simd::mul(Simd::load(x + d), Simd::set1(scale)));
    std::memcpy(dst + d * kBytes, part, static_cast<std::size_t>((count - d) * kBytes));
  }
}

void store_row(DType dtype, const float* x, float scale, int count, char* dst) {
  if (dtype == DType::kFloat32) return store_row_as<DType::kFloat32>(x, scale, count, dst);
  if (dtype == DType::kFloat16) return store_row_as<DType::kFloat16>(x, scale, count, dst);
  store_row_as<DType::kBFloat16>(x, scale, count, dst);
}

}  // namespace
