// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Which variant and tile a problem gets, as data: by types, head dim, rows and device only. With
// batch_invariant the rows are those of one query token, so that m cannot change a row's bits.
#pragma once

#include <cstdint>

#include "cuda/device.h"
#include "cuda/variants.h"

namespace pagedecode::cuda {

inline constexpr int kMaxStages = 6;

struct Policy {
  int variant = -1;   // of kVariants; -1: none fits
  int team_log2 = 0;  // rows of a tile: 16 a warp
  int stages = 0;
  int exchange_log2 = 5;
  int blocks_per_sm = 0;
  std::size_t smem = 0;  // bytes of a block
};

constexpr bool is_one_byte(DType t) {
  return t == DType::kFloat8E4M3 || t == DType::kFloat8E5M2 || t == DType::kInt8;
}

constexpr CacheKind cache_kind(DType q, DType k, DType v, bool rope) {
  const bool bytes = is_one_byte(k) && is_one_byte(v);
  if (rope || (!bytes && (k != q || v != q))) return CacheKind::kAny;
  if (!bytes) return CacheKind::kSame;
  return k == DType::kFloat8E4M3 && v == k ? CacheKind::kE4M3 : CacheKind::kBytes;
}

// Options that a plain variant does not have.
PD_HOST_DEVICE bool needs_options(const DecodeProblem& p) {
  return p.softcap > 0.0f || p.alibi_slopes || p.draft_mask.kind != MaskKind::kNone ||
         (p.positions && p.window_left >= 0);
}

// Whether a variant is right for a call, if not the best.
constexpr bool fits(const Variant& v, DType q, CacheKind cache, bool options, int head_dim,
                    std::int64_t rows) {
  if (v.head_dim < head_dim || v.min_rows > rows) return false;
  if (v.options != (options || cache == CacheKind::kAny)) return false;
  if (v.cache_bytes() == 1) {
    return v.cache == cache || (v.cache == CacheKind::kBytes && cache == CacheKind::kE4M3);
  }
  return v.cache == cache && v.element == q;
}

// The variant for `rows` query rows: the smallest head dim that holds D, then the one that is for
// the most rows, then the one for this cache alone.
constexpr int choose_variant(DType q, CacheKind cache, bool options, int head_dim,
                             std::int64_t rows) {
  int best = -1;
  for (int i = 0; i < kNumVariants; ++i) {
    const Variant& v = kVariants[i];
    if (!fits(v, q, cache, options, head_dim, rows)) continue;
    if (best >= 0) {
      const Variant& b = kVariants[best];
      if (v.head_dim > b.head_dim) continue;
      if (v.head_dim == b.head_dim && v.min_rows < b.min_rows) continue;
      if (v.head_dim == b.head_dim && v.min_rows == b.min_rows && v.cache != cache) continue;
    }
    best = i;
  }
  return best;
}

constexpr int log2_of(int x) {
  int n = 0;
  while (1 << n < x) ++n;
  return n;
}

// As many blocks an SM as the variant wants, then as many stages as fit; fewer blocks where shared
// memory is small (sm_86, sm_89: 99 KB). Tiles have at most 64 rows: more rows take several passes,
// whose loads meet in L2.
constexpr Policy choose_policy(DType q, CacheKind cache, bool options, int head_dim,
                               std::int64_t rows, const DeviceInfo& device) {
  Policy best;
  best.variant = choose_variant(q, cache, options, head_dim, rows);
  if (best.variant < 0) return best;
  const Variant& v = kVariants[best.variant];
  while (1 << best.team_log2 < kWarps && kWarpRows << best.team_log2 < rows) ++best.team_log2;
  for (int blocks = v.blocks_per_sm; blocks > 0; --blocks) {
    // 1 KB of each block is the system's.
    const int budget = (device.max_smem_optin + 1024) / blocks - 1024;
    // One stage alone has no load in flight beside the one in use.
    for (int stages = kMaxStages; stages > (blocks > 1 ? 1 : 0); --stages) {
      Plan plan;
      plan.stages = stages;
      plan.rows_log2 = log2_of(kWarpRows << best.team_log2);
      if (shared_plan(v, plan).total > budget) continue;
      // Two exchanges of 64 columns rather than four of 32, if that costs no stage.
      plan.exchange_log2 = 6;
      if (shared_plan(v, plan).total > budget) plan.exchange_log2 = 5;
      best.stages = stages;
      best.exchange_log2 = plan.exchange_log2;
      best.blocks_per_sm = blocks;
      best.smem = static_cast<std::size_t>(shared_plan(v, plan).total);
      return best;
    }
  }
  best.variant = -1;
  return best;
}

}  // namespace pagedecode::cuda
