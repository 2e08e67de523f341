// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Masks and logit options on accumulator fragments. A thread holds, of a 16-row block, rows
// g and g + 8 (g = lane / 4) and columns 8 n + 2 (lane % 4) + {0, 1}. Tiles that every row sees
// never come here.
#pragma once

#include "cuda/decode/traits.h"
#include "cuda/merge/state.h"
#include "cuda/schedule/work.h"

namespace pagedecode::cuda {

// Flattened row of a thread's row `r` (0 .. 2 * kRowBlocks - 1), counted from the warp's first.
__device__ __forceinline__ int fragment_row(int r) {
  return (r / 2) * 16 + (r % 2) * 8 + (threadIdx.x % 32) / 4;
}
// Key of a thread's column `c` (0 .. T / 4 - 1), counted from the sub-tile's first.
__device__ __forceinline__ int fragment_key(int c) {
  return (c / 2) * 8 + (threadIdx.x % 4) * 2 + c % 2;
}

// Keys before this one may be hidden from some row of the tile by its window; a lower bound of the
// tile's interior. Every lane gets it.
__device__ __noinline__ inline std::int32_t window_edge(const DecodeProblem& p, const Plan& plan,
                                           const Work& w) {
  if (p.window_left < 0) return 0;
  const SequenceView s = view_of(w);
  const std::int64_t last = min64((w.row0 + plan.rows - 1) / p.group, s.m - 1);
  std::int64_t edge = 0;
  if (!p.positions) {
    edge = load_row(p, s, last).min_position;
  } else {
    for (std::int64_t i = w.row0 / p.group + threadIdx.x % 32; i <= last; i += 32) {
      edge = max64(edge, load_row(p, s, i).min_position);
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) edge = max64(edge, __shfl_xor_sync(~0u, edge, d));
  }
  return static_cast<std::int32_t>(clamp64(edge, 0, w.n));
}

// Bit r * kCols + c: the thread's row r does not see its column c.
template <int kRows, int kCols>
__device__ __noinline__ std::uint32_t hidden_bits(const DecodeProblem& p, const Work& w, int row0,
                                            int key0) {
  static_assert(kRows * kCols <= 32);
  const SequenceView s = view_of(w);
  const bool plain = p.draft_mask.kind == MaskKind::kNone && !(p.positions && p.window_left >= 0);
  std::uint32_t hidden = 0;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const std::int32_t i = (row0 + fragment_row(r)) / p.group;
    int lo = s.n;  // of a row past the last
    int hi = s.n;
    if (i < s.m) {
      lo = 0;
      if (p.window_left >= 0 && plain) {
        lo = static_cast<int>(clamp64(s.n - s.m + i - p.window_left, 0, s.n));
      }
      if (p.causal && plain) hi = static_cast<int>(max64(s.n - s.m + i + 1, 0));
    }
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      const int key = key0 + fragment_key(c);
      if (key < lo || key >= hi) hidden |= 1u << (r * kCols + c);
    }
  }
  if (plain) return hidden;
#pragma unroll 1
  for (int r = 0; r < kRows; ++r) {
    const std::int32_t i = (row0 + fragment_row(r)) / p.group;
    if (i >= s.m) continue;
    const RowMask row = load_row(p, s, i);
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      const int key = key0 + fragment_key(c);
      if (key < s.n && !visible(p, s, row, key)) hidden |= 1u << (r * kCols + c);
    }
  }
  return hidden;
}

// Soft-cap, then ALiBi; `scale` turns a raw product into a natural logit. The result is in base 2.
template <int kRows, int kCols, class Logit>
__device__ inline void apply_options(const DecodeProblem& p, const Work& w, int head, int row0,
                                     int key0, const float (&scale)[kRows], Logit&& logit) {
  const SequenceView s = view_of(w);
  float slope[kRows];
  std::int64_t position[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    slope[r] = 0.0f;
    position[r] = 0;
    const int f = row0 + fragment_row(r);
    if (p.alibi_slopes && f < s.m * p.group) {
      slope[r] = p.alibi_slopes[head * p.group + f % p.group];
      position[r] = row_position(p, s, f / p.group);
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
