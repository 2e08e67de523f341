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
  DType element;  // of the matrix products; kBytes takes q of either 16-bit type
  CacheKind cache;
  int head_dim;   // padded: takes what is smaller, too
  int warp_rows;  // query rows of one warp

  constexpr int cache_bytes() const { return cache == CacheKind::kBytes ? 1 : 2; }
  constexpr int row_bytes() const { return head_dim * cache_bytes(); }
  // Keys that a warp loads at a time: 32 where a row is short (4 to 8 KB a stage of a warp), 16
  // with many rows, for registers.
  constexpr int keys() const { return row_bytes() <= 128 && warp_rows == 16 ? 32 : 16; }
  constexpr int stage_bytes() const { return 2 * keys() * row_bytes(); }
  // Columns of accumulators that the epilogue exchanges at a time.
  constexpr int exchange_columns() const { return warp_rows == 16 ? 32 : 16; }
  // Registers: 255 a thread need at most 2 blocks of 128 threads; 256 columns need stages of 64 KB.
  constexpr int blocks_per_sm() const { return head_dim <= 128 ? 2 : 1; }
};

inline constexpr Variant kVariants[] = {
    {"bf16_d64_r16", DType::kBFloat16, CacheKind::kSame, 64, 16},
    {"bf16_d128_r16", DType::kBFloat16, CacheKind::kSame, 128, 16},
    {"bf16_d128_r32", DType::kBFloat16, CacheKind::kSame, 128, 32},
    {"bf16_d256_r16", DType::kBFloat16, CacheKind::kSame, 256, 16},
    {"fp16_d64_r16", DType::kFloat16, CacheKind::kSame, 64, 16},
    {"fp16_d128_r16", DType::kFloat16, CacheKind::kSame, 128, 16},
    {"fp16_d128_r32", DType::kFloat16, CacheKind::kSame, 128, 32},
    {"fp16_d256_r16", DType::kFloat16, CacheKind::kSame, 256, 16},
    {"bytes_d64_r16", DType::kFloat16, CacheKind::kBytes, 64, 16},
    {"bytes_d128_r16", DType::kFloat16, CacheKind::kBytes, 128, 16},
    {"bytes_d128_r32", DType::kFloat16, CacheKind::kBytes, 128, 32},
    {"bytes_d256_r16", DType::kFloat16, CacheKind::kBytes, 256, 16},
    {"any_bf16_d256_r16", DType::kBFloat16, CacheKind::kAny, 256, 16},
    {"any_fp16_d256_r16", DType::kFloat16, CacheKind::kAny, 256, 16},
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
  const int exchange = plan.warps * v.warp_rows * (v.exchange_columns() * 4 + 8);
  const int q = plan.rows * v.head_dim * 2;
  s.q = plan.stages * plan.warps * v.stage_bytes();
  s.work = s.q + (q > exchange ? q : exchange);
  s.bad = s.work + plan.warps * (plan.stages + 1) * kWorkBytes;
  s.flag = s.bad + plan.warps * plan.stages * 4;
  s.row_scale = s.flag + 4;
  s.total = s.row_scale + (v.cache == CacheKind::kBytes ? plan.rows * 4 : 0);
  return s;
}

}  // namespace pagedecode::cuda
