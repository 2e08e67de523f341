// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/isa/simd_avx512.h"
// (first the vectors, then what uses them)
#include "cpu/isa/dot_bf16.h"
#include "cpu/isa/level.h"
#include "cpu/isa/levels.h"

namespace pagedecode::cpu {
namespace {

Variant variant(DType q, DType k, DType v) {
  Variant r = fma_variant(q, k, v);
  if (q != DType::kBFloat16 || !fits_bfloat16(k)) return r;
  r.name = "vdpbf16ps";
  r.load_q = &dot_load_q;
  r.logits = &dot_logits;
  r.stage_k = of_type(k, [](auto t) {
    constexpr DType kType = decltype(t)::kValue;
    if constexpr (fits_bfloat16(kType)) {
      return &dot_stage_k<kType>;
    } else {
      return &fma_stage_k<kType>;  // not reached
    }
  });
  return r;
}

}  // namespace

const Level kLevelAvx512Bf16 = {"avx512bf16", &variant, &store_row};

}  // namespace pagedecode::cpu
