// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// NaN and infinities in V under a mask, with query rows first (see mask.cuh). P and what is hidden
// (-inf in s) are in registers of the quad that has the row.
#pragma once

#include "cuda/decode_wgmma/mask.cuh"
#include "cuda/decode_wgmma/rows_softmax.cuh"

namespace pagedecode::cuda {

// As clean_values().
template <class Traits, class Mainloop>
__device__ __forceinline__ void clean_row_values(const Work& w, int key0, std::uint8_t* v,
                                                 Mainloop& mainloop) {
  using Softmax = RowsSoftmax<Traits>;
  constexpr DType kType = Traits::kVariant.element;
  constexpr std::uint32_t kHidden = 0x80000000;  // -0: no probability is that
  if (!blank_values<Traits>(mainloop.p, w, key0, v)) return;
  const int t = lane_index() % 4;
#pragma unroll 1
  for (int token = 0; token < Traits::kTileKeys; ++token) {
    // The probabilities of this thread's rows, from the thread of the quad that holds the key.
    float weight[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      weight[r] = 0.0f;
#pragma unroll
      for (int c = 0; c < Softmax::kOwnKeys; ++c) {
        if (c / 2 != token / 8 || c % 2 != token % 2) continue;
        // As the product takes it: 0 times infinity is NaN there, too.
        const float2 both = float2_from(kType, mainloop.weights[c / 2 * 2 + r]);
        weight[r] = c % 2 ? both.y : both.x;
        if (mainloop.s[Softmax::place_of(r, c)] == -INFINITY) weight[r] = __uint_as_float(kHidden);
      }
      weight[r] = __shfl_sync(~0u, weight[r], token % 8 / 2, 4);
    }
#pragma unroll
    for (int j = 0; j < Traits::kHeadDim / 8; ++j) {
      const std::uint8_t* at = v + j * 16 / Traits::kPartBytes * Traits::kPartTile +
                               Traits::place(token, j * 16 % Traits::kPartBytes / 16) + t * 4;
      const std::uint32_t word = *reinterpret_cast<const std::uint32_t*>(at);
      const std::uint32_t nonfinite = nonfinite_elements(kType, word);
      if (nonfinite == 0) continue;
      const float2 x = float2_from(kType, word);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (__float_as_uint(weight[r]) == kHidden) continue;
        float* const o = mainloop.o + 4 * j + 2 * r;
        if (nonfinite & 0xffffu) o[0] = fmaf(weight[r], x.x, o[0]);
        if (nonfinite >> 16) o[1] = fmaf(weight[r], x.y, o[1]);
      }
    }
  }
  drop_nonfinite<Traits>(kType, v);
}

}  // namespace pagedecode::cuda
