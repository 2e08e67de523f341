// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The compiled decode kernels, as data: instances, look-up, error texts and tests read this table.
// A new row is one line here and one file in decode/instances/.
#pragma once

#include <cstdint>

#include "cuda/schedule/plan.h"
#include "pagedecode/types.h"

namespace pagedecode::cuda {

enum class CacheKind : std::uint8_t {
  kSame,   // K and V in q's type
  kE4M3,   // K and V float8_e4m3fn; arithmetic in half
  kBytes,  // K and V of 1-byte types, each its own, told apart at run time; arithmetic in half
  kAny,    // whatever the contract allows, and RoPE on read: converted on the way, slower
};

struct Variant {
  const char* name;
  DType element;  // of the matrix products; 1-byte caches take q of either 16-bit type
  CacheKind cache;
  int head_dim;   // padded: takes what is smaller, too
  int min_rows;   // rows (m x group) from which this one is for
  int keys;       // that a warp loads at a time: 4 to 8 KB of K and V
  int step_keys;  // of one softmax step: `keys`, or those of two warps of a team
  bool options;   // soft-cap, ALiBi, draft masks, windows by given positions: a plain kernel has
                  // none of them, and with that no spills and half the code to fetch at a start
  int blocks_per_sm;  // of 160 threads: 2 leave 168 registers a thread

  constexpr int cache_bytes() const {
    return cache == CacheKind::kBytes || cache == CacheKind::kE4M3 ? 1 : 2;
  }
  constexpr int row_bytes() const { return head_dim * cache_bytes(); }
  constexpr int stage_bytes() const { return 2 * keys * row_bytes(); }  // of one warp's keys
};

inline constexpr int kWarpRows = 16;  // query rows of one warp

inline constexpr Variant kVariants[] = {
    {"bf16_d64", DType::kBFloat16, CacheKind::kSame, 64, 1, 32, 32, false, 2},
    {"bf16_d128", DType::kBFloat16, CacheKind::kSame, 128, 1, 16, 16, false, 2},
    {"bf16_d128_rows", DType::kBFloat16, CacheKind::kSame, 128, 17, 16, 32, false, 2},
    {"bf16_d256", DType::kBFloat16, CacheKind::kSame, 256, 1, 16, 16, false, 1},
    {"bf16_d128_options", DType::kBFloat16, CacheKind::kSame, 128, 1, 16, 16, true, 2},
    {"bf16_d256_options", DType::kBFloat16, CacheKind::kSame, 256, 1, 16, 16, true, 1},
    {"fp16_d64", DType::kFloat16, CacheKind::kSame, 64, 1, 32, 32, false, 2},
    {"fp16_d128", DType::kFloat16, CacheKind::kSame, 128, 1, 16, 16, false, 2},
    {"fp16_d128_rows", DType::kFloat16, CacheKind::kSame, 128, 17, 16, 32, false, 2},
    {"fp16_d256", DType::kFloat16, CacheKind::kSame, 256, 1, 16, 16, false, 1},
    {"fp16_d128_options", DType::kFloat16, CacheKind::kSame, 128, 1, 16, 16, true, 2},
    {"fp16_d256_options", DType::kFloat16, CacheKind::kSame, 256, 1, 16, 16, true, 1},
    {"e4m3_d128", DType::kFloat16, CacheKind::kE4M3, 128, 1, 32, 32, false, 2},
    {"bytes_d64", DType::kFloat16, CacheKind::kBytes, 64, 1, 32, 32, false, 2},
    {"bytes_d128", DType::kFloat16, CacheKind::kBytes, 128, 1, 32, 32, false, 2},
    {"bytes_d256", DType::kFloat16, CacheKind::kBytes, 256, 1, 16, 16, false, 1},
    {"bytes_d128_options", DType::kFloat16, CacheKind::kBytes, 128, 1, 32, 32, true, 2},
    {"bytes_d256_options", DType::kFloat16, CacheKind::kBytes, 256, 1, 16, 16, true, 1},
    {"any_bf16_d256", DType::kBFloat16, CacheKind::kAny, 256, 1, 16, 16, true, 1},
    {"any_fp16_d256", DType::kFloat16, CacheKind::kAny, 256, 1, 16, 16, true, 1},
};
inline constexpr int kNumVariants = sizeof(kVariants) / sizeof(kVariants[0]);

constexpr bool same_text(const char* a, const char* b) {
  while (*a && *a == *b) ++a, ++b;
  return *a == *b;
}

// Index of a variant by name; -1 if there is none.
constexpr int find_variant(const char* name) {
  for (int i = 0; i < kNumVariants; ++i) {
    if (same_text(kVariants[i].name, name)) return i;
  }
  return -1;
}

constexpr SharedPlan shared_plan(const Variant& v, const Plan& plan) {
  SharedPlan s{};
  const int exchange = kWarps * kWarpRows * ((4 << plan.exchange_log2) + 8 + 4);
  const int q = (1 << plan.rows_log2) * v.head_dim * 2;
  s.q = plan.stages * kWarps * v.stage_bytes();
  s.work = s.q + (q > exchange ? q : exchange);
  s.header = s.work + (plan.stages + 1) * kWorkBytes;
  s.barriers = s.header + plan.stages * kHeaderBytes;
  s.row_scale = s.barriers + plan.stages * kStageBarriers * 8;
  s.total = s.row_scale + (v.cache_bytes() == 1 ? (1 << plan.rows_log2) * 4 : 0);
  return s;
}

}  // namespace pagedecode::cuda
