// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Online softmax of the consuming warps over S^T (T, N), without a maximum in the common path:
// probabilities are taken against each row's reference as it stands and stored as P; one barrier,
// which P needs anyway, also tells whether any thread's sum passed kCeiling. Then, rarely (always
// in a row's first tile), the true maxima are found, and those rows alone are moved that have a
// probability above kCeiling of their own: a row's bits never depend on its neighbours.
//
// A thread holds, of row 8 j + 2 (lane % 4) + e (i = 2 j + e below), keys 16 warp + lane / 4 and
// that + 8: s[4 j + e], s[4 j + 2 + e].
#pragma once

#include "cuda/decode_wgmma/traits.h"
#include "cuda/merge/state.h"

namespace pagedecode::cuda {

template <class Traits>
struct WgmmaSoftmax {
  static constexpr int kRows = Traits::kRows;
  static constexpr int kOwn = kRows / 4;  // rows of a thread
  static constexpr bool kRowScales = Traits::kBytes;
  // A moved reference lies this far below the largest logit: head room of later tiles, and, for
  // half-precision P, distance from subnormals.
  static constexpr float kHeadroom = 4.0f;
  static constexpr float kCeiling = 2048.0f;
  // Minus the reference of a row that has seen nothing: the first logit makes infinity of its
  // probability, a hidden key's -inf makes 0.
  static constexpr float kFresh = 3e38f;

  float minus_ref[kOwn];
  float sum[kOwn];  // of this thread's keys
  float scale[Traits::kBytes ? kOwn : 1];

  __device__ __forceinline__ static int row_of(int i) {
    return i / 2 * 8 + lane_index() % 4 * 2 + i % 2;
  }
  static constexpr int kOwnKeys = 2;
  // Of a thread's key c, counted from the tile's first.
  __device__ __forceinline__ static int key_of(int c) {
    return thread_index() / 32 * 16 + lane_index() / 4 + 8 * c;
  }
  // Where s holds row i and key c.
  __device__ __forceinline__ static constexpr int place_of(int i, int c) {
    return i / 2 * 4 + 2 * c + i % 2;
  }
  __device__ __forceinline__ float scale_of(int i) const { return scale[Traits::kBytes ? i : 0]; }

  __device__ __forceinline__ void begin(const float* shared_scale, bool scaled_already) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      minus_ref[i] = kFresh;
      sum[i] = 0.0f;
    }
    const float* from = shared_scale + (Traits::kBytes ? lane_index() % 4 * 2 : 0);
#pragma unroll
    for (int i = 0; i < (Traits::kBytes ? kOwn : 1); ++i) scale[i] = from[i / 2 * 8 + i % 2];
    if (scaled_already) {
#pragma unroll
      for (int i = 0; i < (Traits::kBytes ? kOwn : 1); ++i) scale[i] = 1.0f;
    }
  }

  // P of a tile to shared memory, `total` the sums of this thread's keys; returns their sum.
  __device__ __forceinline__ float exponentiate(const float (&s)[2 * kOwn], float (&total)[kOwn],
                                                std::uint32_t p_address) const {
    float all = 0.0f;
#pragma unroll
    for (int j = 0; j < kRows / 8; ++j) {
      float x[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        x[e] = exp2_fast(fmaf(s[4 * j + e], scale_of(2 * j + e % 2), minus_ref[2 * j + e % 2]));
      }
      total[2 * j] = x[0] + x[2];
      total[2 * j + 1] = x[1] + x[3];
      all += total[2 * j] + total[2 * j + 1];
      using Element = typename Traits::Element;
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(p_address + j * Traits::kPRowBlock),
                   "r"(pack2<Element>(x[0], x[1]))
                   : "memory");
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(p_address + j * Traits::kPRowBlock + 128),
                   "r"(pack2<Element>(x[2], x[3]))
                   : "memory");
    }
    return all;
  }

  // Finds the largest logits and moves the references of the rows that need it.
  template <class Rescale>
  __device__ __forceinline__ void move_references(const float (&s)[2 * kOwn],
                                                  float (*by_warp)[Traits::kConsumerWarps],
                                                  Rescale&& rescale) {
    const int lane = lane_index();
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      float top = fmaxf(s[i / 2 * 4 + i % 2], s[i / 2 * 4 + 2 + i % 2]);
#pragma unroll
      for (int d = 4; d < 32; d *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
      if (lane < 4) by_warp[row_of(i)][thread_index() / 32] = top;
    }
    sync_consumers<Traits>();
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      float top = -INFINITY;
#pragma unroll
      for (int g = 0; g < Traits::kGroups; ++g) {
        const float4 tops = reinterpret_cast<const float4*>(by_warp[row_of(i)])[g];
        top = fmaxf(top, fmaxf(fmaxf(tops.x, tops.y), fmaxf(tops.z, tops.w)));
      }
      // The same number as the thread that holds the key has found.
      const float largest = exp2_fast(fmaf(top, scale_of(i), minus_ref[i]));
      if (!(largest > kCeiling)) continue;
      // An integer: factors are powers of two, and references may move without rounding.
      const float to = kHeadroom - rintf(top * scale_of(i));
      // A fresh row has nothing yet: its factor is 0.
      const float factor = exp2_fast(to - minus_ref[i]);
      minus_ref[i] = to;
      sum[i] *= factor;
      rescale(i, factor);
    }
  }

  // Of a tile: P to shared memory, ready for wgmma when it returns. `p_address`: where this
  // thread's first pair of P goes. `special`: the tile has to be masked, or no row has a reference
  // yet (`fresh`). o (D, N) is scaled where references move.
  template <class Mask, class Rescale>
  __device__ __forceinline__ void step(const float (&s)[2 * kOwn], bool special, bool fresh,
                                       std::uint32_t p_address,
                                       float (*by_warp)[Traits::kConsumerWarps], Mask&& mask,
                                       Rescale&& rescale) {
    float total[kOwn];
    bool masked = false, moved = false;
    // One copy of the code for both turns: cold instructions cost about 9 ns each. All that is rare
    // in one place: each jump over code costs 20 clocks.
#pragma unroll 1
    while (true) {
      if (special) {
        if (!masked) mask();
        moved = masked || fresh;
        masked = true;
        if (moved) move_references(s, by_warp, rescale);
      }
      const float all = exponentiate(s, total, p_address);
      fence_async();
      // A sum is at least each of its terms, and NaN if one is.
      if (!any_of_team<Traits>(!moved && !(all <= kCeiling))) break;
      special = masked = true;
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i) sum[i] += total[i];
  }
};

}  // namespace pagedecode::cuda
