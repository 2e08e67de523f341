// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/isa/simd_avx512.h"
// (first the vectors, then what uses them)
#include "cpu/isa/amx.h"
#include "cpu/isa/level.h"
#include "cpu/isa/levels.h"

namespace pagedecode::cpu {
namespace {

Variant variant(DType q, DType k, DType v) {
  Variant r = fma_variant(q, k, v);
  if (q != DType::kBFloat16 || !fits_bfloat16(k)) return r;
  r.name = "amx";
  r.load_q = &amx_load_q;
  r.logits = &amx_logits;
  r.begin = &amx_begin;
  r.end = &amx_end;
  r.stage_k = of_type(k, [](auto t) {
    constexpr DType kType = decltype(t)::kValue;
    if constexpr (fits_bfloat16(kType)) {
      return &amx_stage_k<kType>;
    } else {
      return &fma_stage_k<kType>;  // not reached
    }
  });
  if (!fits_bfloat16(v)) return r;
  r.softmax = &amx_softmax;
  r.accumulate = of_type(v, [](auto t) {
    constexpr DType kType = decltype(t)::kValue;
    if constexpr (fits_bfloat16(kType)) {
      return &amx_accumulate<kType>;
    } else {
      return &fma_accumulate;  // not reached
    }
  });
  r.stage_v = of_type(v, [](auto t) {
    constexpr DType kType = decltype(t)::kValue;
    if constexpr (fits_bfloat16(kType)) {
      return &amx_stage_v<kType>;
    } else {
      return &fma_stage_v<kType>;  // not reached
    }
  });
  return r;
}

}  // namespace

const Level kLevelAmx = {"amx", &variant, &store_row};

}  // namespace pagedecode::cpu
