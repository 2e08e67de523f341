// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Online softmax of one warp, without a maximum in the common path: probabilities are taken
// against the row's reference as it stands, and only the test that their sum stays below kCeiling
// is paid for (on an H200, e4m3 at 32 rows: from 1.38 to 1.18 x the ceiling of memory). The rare
// path (always a row's first tile) moves the reference of those rows alone whose own sum exceeded
// it, so that a row's bits never depend on its neighbours.
#pragma once

#include "cuda/decode/traits.h"
#include "cuda/merge/state.h"
#include "cuda/thread.cuh"

namespace pagedecode::cuda {

// A moved reference lies this far below the largest logit: the head room of later tiles, and,
// for half-precision P, its distance from subnormals.
inline constexpr float kHeadroom = 4.0f;
inline constexpr float kCeiling = 4096.0f;

// A thread's two rows.
struct OnlineSoftmax {
  static constexpr int kRows = 2;
  float ref[kRows];
  float sum[kRows];  // of this thread's columns

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      ref[r] = -INFINITY;
      sum[r] = 0.0f;
    }
  }

  // rS ((2, 2), 1, N): raw products in, probabilities out. rO ((2, 2), 1, D / 8).
  // `hidden` as of hidden_bits(); scale turns a product into a logit in base 2.
  template <bool kMasked, class RS, class RO>
  __device__ __forceinline__ void step(RS& rS, RO& rO, const float (&scale)[kRows],
                                       std::uint32_t hidden) {
    constexpr int kCols = decltype(cute::size<2>(rS))::value * 2;
    float p[kRows][kCols];
    float total[kRows];
    std::uint32_t over = 0;
    // The sum of a thread's probabilities bounds each of them, and is NaN if one is.
    auto exponentiate = [&](int r, float from) {
      total[r] = 0.0f;
#pragma unroll
      for (int c = 0; c < kCols; ++c) {
        float x = fmaf(rS(cute::make_coord(c % 2, r), 0, c / 2), scale[r], -from);
        if (kMasked && (hidden >> (r * kCols + c) & 1)) x = -INFINITY;
        p[r][c] = exp2_fast(x);
        total[r] += p[r][c];
      }
    };
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      exponentiate(r, ref[r]);
      over |= std::uint32_t(!(total[r] <= kCeiling)) << r;
    }
    if (__any_sync(~0u, over)) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const std::uint32_t who = __ballot_sync(~0u, over >> r & 1);
        const bool move = (who >> (lane_index() / 4 * 4) & 0xf) != 0;
        float top = -INFINITY;
#pragma unroll
        for (int c = 0; c < kCols; ++c) {
          const float x = rS(cute::make_coord(c % 2, r), 0, c / 2) * scale[r];
          if (!kMasked || !(hidden >> (r * kCols + c) & 1)) top = fmaxf(top, x);
        }
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        if (move) {
          const float to = fmaxf(top - kHeadroom, ref[r]);
          const float factor = weight_of(ref[r], to);
          ref[r] = to;
          sum[r] *= factor;
#pragma unroll
          for (int n = 0; n < cute::size<2>(rO); ++n) {
            rO(cute::make_coord(0, r), 0, n) *= factor;
            rO(cute::make_coord(1, r), 0, n) *= factor;
          }
          // Logits of -inf only: a weight of zero, not NaN.
          exponentiate(r, to == -INFINITY ? 0.0f : to);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      sum[r] += total[r];
#pragma unroll
      for (int c = 0; c < kCols; ++c) rS(cute::make_coord(c % 2, r), 0, c / 2) = p[r][c];
    }
  }

  // Sums over the four threads of a row; after the last step.
  __device__ __forceinline__ void reduce() {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      sum[r] += __shfl_xor_sync(~0u, sum[r], 1);
      sum[r] += __shfl_xor_sync(~0u, sum[r], 2);
    }
  }
};

}  // namespace pagedecode::cuda
