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
  kBytes,  // K and V of 1-byte types, each its own; arithmetic in half
  kAny,    // whatever the contract allows, and RoPE on read: converted on the way, slower
};

struct Variant {
  const char* name;
  DType element;      // of the matrix products; kBytes takes q of either 16-bit type
  CacheKind cache;
  int head_dim;       // padded: takes what is smaller, too
  int min_rows;       // rows (m x group) from which this one is for
  int keys;           // that a warp loads at a time: 4 to 8 KB of K and V
  int step_keys;      // of one softmax step: `keys`, or those of two warps of a team
  int blocks_per_sm;  // of 128 threads: 2 leave 255 registers a thread; 3 leave 168, and spill

  constexpr int cache_bytes() const { return cache == CacheKind::kBytes ? 1 : 2; }
  constexpr int row_bytes() const { return head_dim * cache_bytes(); }
  constexpr int stage_bytes() const { return 2 * keys * row_bytes(); }  // of one warp
};

inline constexpr int kWarpRows = 16;         // query rows of one warp
inline constexpr int kExchangeColumns = 32;  // of accumulators, that the epilogue exchanges at a time

inline constexpr Variant kVariants[] = {
    {"bf16_d64", DType::kBFloat16, CacheKind::kSame, 64, 1, 32, 32, 2},
    {"bf16_d128", DType::kBFloat16, CacheKind::kSame, 128, 1, 16, 16, 2},
    {"bf16_d128_rows", DType::kBFloat16, CacheKind::kSame, 128, 17, 16, 32, 2},
    {"bf16_d256", DType::kBFloat16, CacheKind::kSame, 256, 1, 16, 16, 1},
    {"fp16_d64", DType::kFloat16, CacheKind::kSame, 64, 1, 32, 32, 2},
    {"fp16_d128", DType::kFloat16, CacheKind::kSame, 128, 1, 16, 16, 2},
    {"fp16_d128_rows", DType::kFloat16, CacheKind::kSame, 128, 17, 16, 32, 2},
    {"fp16_d256", DType::kFloat16, CacheKind::kSame, 256, 1, 16, 16, 1},
    {"bytes_d64", DType::kFloat16, CacheKind::kBytes, 64, 1, 32, 32, 2},
    {"bytes_d128", DType::kFloat16, CacheKind::kBytes, 128, 1, 32, 32, 2},
    {"bytes_d256", DType::kFloat16, CacheKind::kBytes, 256, 1, 16, 16, 1},
    {"any_bf16_d256", DType::kBFloat16, CacheKind::kAny, 256, 1, 16, 16, 1},
    {"any_fp16_d256", DType::kFloat16, CacheKind::kAny, 256, 1, 16, 16, 1},
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

// Where things lie in a block's dynamic shared memory.
struct SharedPlan {
  std::int32_t q;          // Q, or the epilogue's exchange; before it the ring of stages
  std::int32_t work;       // rings of Work, one a warp
  std::int32_t bad;        // bad-page bits [warps][stages]
  std::int32_t flag;       // one word: whether this block is the last of an item
  std::int32_t row_scale;  // float [rows], kBytes
  std::int32_t total;
};

inline constexpr int kWorkBytes = 48;

PD_HOST_DEVICE constexpr SharedPlan shared_plan(const Variant& v, const Plan& plan) {
  SharedPlan s{};
  const int exchange = plan.warps * kWarpRows * (kExchangeColumns * 4 + 8);
  const int q = (1 << plan.rows_log2) * v.head_dim * 2;
  s.q = plan.stages * plan.warps * v.stage_bytes();
  s.work = s.q + (q > exchange ? q : exchange);
  s.bad = s.work + plan.warps * (plan.stages + 1) * kWorkBytes;
  s.flag = s.bad + plan.warps * plan.stages * 4;
  s.row_scale = s.flag + 4;
  s.total = s.row_scale + (v.cache == CacheKind::kBytes ? (1 << plan.rows_log2) * 4 : 0);
  return s;
}

}  // namespace pagedecode::cuda
