// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Online softmax over S (64, T) of a warpgroup that has query rows first, as softmax.cuh does it:
// probabilities against each row's reference as it stands, the true maxima only where some sum
// passed kCeiling, and only the rows moved that have such a probability of their own. A row lies in
// the four threads of a quad, so that all of it stays within a warp: no barrier, and P goes from
// registers into the product.
//
// A thread holds, of row 16 warp + lane / 4 + 8 r (r = 0, 1), keys 8 j + 2 (lane % 4) + e:
// s[4 j + 2 r + e].
#pragma once

#include "cuda/decode_wgmma/softmax.cuh"

namespace pagedecode::cuda {

template <class Traits>
struct RowsSoftmax {
  static constexpr int kKeys = Traits::kTileKeys;
  static constexpr int kOwn = 2;              // rows of a thread
  static constexpr int kOwnKeys = kKeys / 4;  // of each
  static constexpr bool kRowScales = Traits::kOneByte;
  static constexpr float kHeadroom = WgmmaSoftmax<Traits>::kHeadroom;
  static constexpr float kCeiling = WgmmaSoftmax<Traits>::kCeiling;
  static constexpr float kFresh = WgmmaSoftmax<Traits>::kFresh;

  float minus_ref[kOwn];
  float sum[kOwn];  // of this thread's keys
  float scale[kRowScales ? kOwn : 1];

  __device__ __forceinline__ static int row_of(int r) {
    return thread_index() / 32 % (Traits::kRows / 16) * 16 + lane_index() / 4 + 8 * r;
  }
  // Of a thread's key c, counted from the tile's first.
  __device__ __forceinline__ static int key_of(int c) {
    return c / 2 * 8 + lane_index() % 4 * 2 + c % 2;
  }
  // Where s holds row r and key c.
  __device__ __forceinline__ static constexpr int place_of(int r, int c) {
    return c / 2 * 4 + 2 * r + c % 2;
  }

  __device__ __forceinline__ float scale_of(int r) const { return scale[kRowScales ? r : 0]; }

  __device__ __forceinline__ void begin(const float* shared_scale, bool scaled_already) {
#pragma unroll
    for (int r = 0; r < (kRowScales ? kOwn : 1); ++r) {
      scale[r] = scaled_already ? 1.0f : shared_scale[kRowScales ? row_of(r) : 0];
    }
#pragma unroll
    for (int r = 0; r < kOwn; ++r) {
      minus_ref[r] = kFresh;
      sum[r] = 0.0f;
    }
  }

  // P of a tile as the product takes it (A, in registers); `total`: the sums of this thread's keys.
  __device__ __forceinline__ void exponentiate(const float (&s)[kKeys / 2],
                                               std::uint32_t (&p)[kKeys / 4],
                                               float (&total)[kOwn]) const {
    using Element = typename Traits::Element;
    total[0] = total[1] = 0.0f;
#pragma unroll
    for (int i = 0; i < kKeys / 4; ++i) {
      const int r = i % 2;
      const float a = exp2_fast(fmaf(s[2 * i], scale_of(r), minus_ref[r]));
      const float b = exp2_fast(fmaf(s[2 * i + 1], scale_of(r), minus_ref[r]));
      total[r] += a + b;
      p[i] = pack2<Element>(a, b);
    }
  }

  // Finds the largest logits and moves the references of the rows that need it; what came before
  // is to be multiplied by `factor`.
  __device__ __forceinline__ void move_references(const float (&s)[kKeys / 2],
                                                  float (&factor)[kOwn]) {
#pragma unroll
    for (int r = 0; r < kOwn; ++r) {
      float top = -INFINITY;
#pragma unroll
      for (int c = 0; c < kOwnKeys; ++c) top = fmaxf(top, s[place_of(r, c)]);
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      factor[r] = 1.0f;
      // The same number as the thread that holds the key has found.
      const float largest = exp2_fast(fmaf(top, scale_of(r), minus_ref[r]));
      if (!(largest > kCeiling)) continue;
      // An integer: factors are powers of two, and references may move without rounding.
      const float to = kHeadroom - rintf(top * scale_of(r));
      // A fresh row has nothing yet: its factor is 0.
      factor[r] = exp2_fast(to - minus_ref[r]);
      minus_ref[r] = to;
      sum[r] *= factor[r];
    }
  }

  // Of a tile: P. Whether what came before is to be multiplied by `factor`: always where no row has
  // a reference yet (`fresh`). `special`: fresh, or the tile has to be masked.
  template <class Mask>
  __device__ __forceinline__ bool step(const float (&s)[kKeys / 2], bool special, bool fresh,
                                       std::uint32_t (&p)[kKeys / 4], float (&factor)[kOwn],
                                       Mask&& mask) {
    float total[kOwn];
    bool masked = false, moved = false;
    // One copy of the code for both turns, and one place for all that is rare: as in softmax.cuh.
#pragma unroll 1
    while (true) {
      if (special) {
        if (!masked) mask();
        moved = masked || fresh;
        masked = true;
        if (moved) move_references(s, factor);
      }
      exponentiate(s, p, total);
      // A sum is at least each of its terms, and NaN if one is.
      const bool over = !(total[0] <= kCeiling) || !(total[1] <= kCeiling);
      if (moved || !__any_sync(~0u, over)) break;
      special = masked = true;
    }
    sum[0] += total[0];
    sum[1] += total[1];
    return moved;
  }
};

}  // namespace pagedecode::cuda
