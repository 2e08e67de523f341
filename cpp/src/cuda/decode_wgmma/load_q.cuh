// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Q of a row tile, B of S^T = K Q^T: [kBlocks](N, 64) with the 128-byte swizzle, zero past the last
// row. The sign of the scale is taken into Q, so that the largest product is the largest logit. For
// 1-byte caches Q becomes half: a bfloat16 row is scaled by a power of two of its own, and, where K
// passes through registers, columns are permuted as mainloop.cuh reads it.
#pragma once

#include "cuda/decode/load_q.cuh"
#include "cuda/decode_wgmma/traits.h"
#include "cuda/merge/state.h"

namespace pagedecode::cuda {

// A thread's share of Q, on its way.
template <class Traits>
struct WgmmaQ {
  static constexpr int kChunks = Traits::kHeadDim / 8;  // of a row
  static constexpr int kAll = Traits::kRows * kChunks;
  static constexpr int kShare = (kAll + Traits::kConsumers - 1) / Traits::kConsumers;
  // Whole warps have a share, or none.
  __device__ __forceinline__ static bool has(int at) {
    return kAll % Traits::kConsumers == 0 || at < kAll;
  }
  // Few enough registers to be fetched while the work before ends.
  static constexpr bool kEarly = kShare <= 4 && !Traits::kRowsFirst;

  Chunk16 chunks[kShare];

  // All loads before the first use, which the compiler would not let them pass.
  __device__ __forceinline__ void fetch(const DecodeProblem& p, const Plan& plan, const Work& w) {
    const SequenceView s = view_of(w);
#pragma unroll
    for (int j = 0; j < kShare; ++j) {
      const int at = thread_index() + j * Traits::kConsumers;
      const int f = w.row0 + at / kChunks;
      const int i = plan.row_of(f);
      chunks[j] = Chunk16{};
      if (has(at) && i < s.m) {
        const std::int64_t from = row_offset(p.q, s, i, bool(p.cu_seqlens_q)) +
                                  (w.head * p.group + f - i * p.group) * p.q.head_stride;
        chunks[j] = *reinterpret_cast<const Chunk16*>(static_cast<const std::uint16_t*>(p.q.data) +
                                                      from + at % kChunks * 8);
      }
    }
  }
};

template <class Traits>
__device__ __forceinline__ void store_wgmma_q(const DecodeProblem& p, const Work& w,
                                              const WgmmaQ<Traits>& q,
                                              WgmmaStorage<Traits>& shared) {
  constexpr int kRows = Traits::kRows;
  constexpr int kChunks = WgmmaQ<Traits>::kChunks;
  constexpr int kShare = WgmmaQ<Traits>::kShare;
  const float scale = p.softmax_scale * p.k_scale[w.head] * kLog2e;
  const std::uint32_t sign = scale < 0.0f ? 0x80008000u : 0;
  // A scale of zero would turn the -inf of hidden keys into NaN.
  constexpr float kSmallest = 1.17549435e-38f;
  const float magnitude = fabsf(scale) < kSmallest ? kSmallest : fabsf(scale);
  if (!Traits::kOneByte && thread_index() == 0) shared.scale[0] = magnitude;
#pragma unroll
  for (int j = 0; j < kShare; ++j) {
    const int at = thread_index() + j * Traits::kConsumers;
    if (!WgmmaQ<Traits>::has(at)) break;
    const int row = at / kChunks;
    const int column = at % kChunks * 8;
    Chunk16 x = q.chunks[j];
#pragma unroll
    for (int e = 0; e < 4; ++e) x.words[e] ^= sign;
    // Place of element `c` of the row, c even.
    const auto place = [&](int c) {
      return shared.q + c / 64 * (kRows * 128) + row * 128 + ((c % 64 / 8 ^ row % 8) * 16) +
             c % 8 * 2;
    };
    if constexpr (Traits::kOneByte) {
      const float power = half_of_row<kChunks>(p.q.dtype, x);
      if (column == 0) {
        const float product = magnitude * power;
        shared.scale[row] = product < kSmallest ? kSmallest : product;
      }
    }
    if constexpr (Traits::kBytes) {
      store_permuted(x, column, place);
    } else {
      *reinterpret_cast<Chunk16*>(place(column)) = x;
    }
  }
}

}  // namespace pagedecode::cuda
