// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/isa/simd_avx512.h"
// (first the vectors, then what uses them)
#include "cpu/isa/amx.h"
#include "cpu/isa/level.h"
#include "cpu/isa/levels.h"

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#include <cpuid.h>

namespace pagedecode::cpu {
namespace {

// NOTE: Linux gives the tiles to a process that asks: ARCH_REQ_XCOMP_PERM of XTILEDATA.
bool runs() {
#if defined(__linux__)
  if (!__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq")) {
    return false;
  }
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  const bool tiles = (d >> 24 & 1) && (d >> 22 & 1);  // AMX-TILE, AMX-BF16
  return tiles && syscall(SYS_arch_prctl, 0x1023, 18) == 0;
#else
  return false;
#endif
}

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

const Level kLevelAmx = {"amx", &runs, &variant, &store_row};

}  // namespace pagedecode::cpu
