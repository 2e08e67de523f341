// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Masks and logit options on accumulator fragments. A thread holds, of a 16-row block, rows
// g and g + 8 (g = lane / 4) and columns 8 n + 2 (lane % 4) + {0, 1}. Tiles that every row sees
// never come here.
#pragma once

#include "cuda/decode/traits.h"
#include "cuda/merge/state.h"
#include "cuda/schedule/work.h"
#include "cuda/thread.cuh"

namespace pagedecode::cuda {

// A thread's row `r` of {0, 1}, counted from the warp's first.
__device__ __forceinline__ int fragment_row(int r) { return r * 8 + lane_index() / 4; }
// Key of a thread's column `c` (0 .. S / 4 - 1), counted from the step's first.
__device__ __forceinline__ int fragment_key(int c) {
  return (c / 2) * 8 + (lane_index() % 4) * 2 + c % 2;
}

// Keys before this one may be hidden from some row of the tile by its window; a lower bound of the
// tile's interior. Every lane gets it.
template <bool kPositions>
__device__ __forceinline__ std::int32_t window_edge(const DecodeProblem& p, const Plan& plan,
                                                    const Work& w) {
  if (p.window_left < 0) return 0;
  const SequenceView s = view_of(w);
  const std::int64_t last = min64(plan.row_of(w.row0 + plan.rows() - 1), s.m - 1);
  std::int64_t edge = 0;
  if (!kPositions || !p.positions) {
    edge = load_row(p, s, last).min_position;
  } else {
    for (std::int64_t i = plan.row_of(w.row0) + lane_index(); i <= last; i += 32) {
      edge = max64(edge, load_row(p, s, i).min_position);
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) edge = max64(edge, __shfl_xor_sync(~0u, edge, d));
  }
  return static_cast<std::int32_t>(clamp64(edge, 0, w.n));
}

// Whether masks are ranges of keys, the same before and in the draft block.
__device__ __forceinline__ bool ranges_only(const DecodeProblem& p) {
  return p.draft_mask.kind == MaskKind::kNone && !(p.positions && p.window_left >= 0);
}

// Bit r * kCols + c: the thread's row r does not see its column c. For masks that are ranges:
// row r sees keys up to its own, `own`[r] = n - m + i, and back to its window's start.
template <int kCols>
__device__ __forceinline__ std::uint32_t hidden_by_ranges(const DecodeProblem& p, const Work& w,
                                                          const int (&own)[2], int key0) {
  static_assert(2 * kCols <= 32);
  const int n = w.n;
  std::uint32_t hidden = 0;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int hi = p.causal ? min(own[r] + 1, n) : n;
    const int lo = p.window_left < 0 ? 0 : own[r] - static_cast<int>(min64(p.window_left, n));
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      const int key = key0 + fragment_key(c);
      if (key < lo || key >= hi) hidden |= 1u << (r * kCols + c);
    }
  }
  return hidden;
}

// The same for any mask.
template <int kCols>
__device__ inline std::uint32_t hidden_by_rule(const DecodeProblem& p, const Plan& plan,
                                               const Work& w, int row0, int key0) {
  const SequenceView s = view_of(w);
  std::uint32_t hidden = 0;
#pragma unroll 1
  for (int r = 0; r < 2; ++r) {
    const std::int32_t i = plan.row_of(row0 + fragment_row(r));
    const RowMask row = i < s.m ? load_row(p, s, i) : RowMask{};
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      const int key = key0 + fragment_key(c);
      if (i >= s.m || key >= s.n || !visible(p, s, row, key)) hidden |= 1u << (r * kCols + c);
    }
  }
  return hidden;
}

// Soft-cap, then ALiBi; `scale` turns a raw product into a natural logit. The result is in base 2.
template <int kCols, class Logit>
__device__ inline void apply_options(const DecodeProblem& p, const Plan& plan, const Work& w,
                                     int head, int row0, int key0, const float (&scale)[2],
                                     Logit&& logit) {
  constexpr int kRows = 2;
  const SequenceView s = view_of(w);
  float slope[kRows];
  std::int64_t position[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    slope[r] = 0.0f;
    position[r] = 0;
    const int f = row0 + fragment_row(r);
    if (p.alibi_slopes && f < s.m * p.group) {
      const int i = plan.row_of(f);
      slope[r] = p.alibi_slopes[head * p.group + f - i * p.group];
      position[r] = row_position(p, s, i);
    }
  }
#pragma unroll
  for (int c = 0; c < kCols; ++c) {
    const int key = key0 + fragment_key(c);
    std::int64_t at = key;
    if (p.alibi_slopes && key < s.n) at = key_position(p, s, key);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float& x = logit(r, c);
      float y = x * scale[r];
      if (p.softcap > 0.0f) y = p.softcap * tanhf(y / p.softcap);
      if (p.alibi_slopes) y += slope[r] * static_cast<float>(saturating_sub64(at, position[r]));
      x = y * kLog2e;
    }
  }
}

}  // namespace pagedecode::cuda
