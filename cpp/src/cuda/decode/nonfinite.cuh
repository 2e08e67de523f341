// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// NaN and infinities in V under a mask. A masked probability is 0, but 0 times NaN is NaN: in a
// tile that some row sees in part, V's non-finite elements are set to zero in shared memory before
// the product, and added by hand to the rows that do see them. Only masked tiles are looked at;
// finding something is rare, and may be slow.
#pragma once

#include "cuda/decode/mainloop.cuh"

namespace pagedecode::cuda {

// Bits of the exponent (or whole payload) that are all ones in a value that is not finite, of the
// 16-bit unit x's low and high halves or of its four bytes: returns a mask of the elements to clear.
__device__ __forceinline__ std::uint32_t nonfinite_elements(DType type, std::uint32_t x) {
  switch (type) {
    case DType::kFloat16:
      return __vcmpeq2(x & 0x7c007c00u, 0x7c007c00u);
    case DType::kBFloat16:
      return __vcmpeq2(x & 0x7f807f80u, 0x7f807f80u);
    case DType::kFloat8E4M3:
      return __vcmpeq4(x & 0x7f7f7f7fu, 0x7f7f7f7fu);
    case DType::kFloat8E5M2:
      return __vcmpeq4(x & 0x7c7c7c7cu, 0x7c7c7c7cu);
    default:
      return 0;
  }
}

// `tile`: V of a step, of a type as it lies in shared memory. `sync` is a barrier of the warps that
// read it; all of them call this with the same tile.
template <class Traits, class Sync>
__device__ inline void take_out_nonfinite(const DecodeProblem& p, const Plan& plan, const Work& w,
                                          int row0, int key0, DType type, std::uint8_t* tile,
                                          Mainloop<Traits>& mainloop, Sync&& sync) {
  constexpr int kWords = Traits::kStepKeys * Traits::kRowBytes / 4;
  auto* words = reinterpret_cast<std::uint32_t*>(tile);
  const int lane = threadIdx.x % 32;
  std::uint32_t found = 0;
#pragma unroll 4
  for (int i = lane; i < kWords; i += 32) found |= nonfinite_elements(type, words[i]);
  if (!__any_sync(~0u, found)) return;

  // Key by key: a lane reads its share of the row, keeps what is not finite, and the threads of the
  // accumulators fetch it from there.
  constexpr int kShare = Traits::kHeadDim / 32;
  const SequenceView s = view_of(w);
  const auto layout = typename Traits::KvLayout{};
#pragma unroll 1
  for (int key = 0; key < Traits::kStepKeys; ++key) {
    if (key0 + key >= w.end || key0 + key < w.begin) continue;
    float bad[kShare];
#pragma unroll 1
    for (int j = 0; j < kShare; ++j) {
      const int d = lane * kShare + j;
      const auto* at = tile + 2 * layout(key, d * int(sizeof(typename Traits::Cache)) / 2) +
                       (Traits::kBytes ? d % 2 : 0);
      const float v = float_from(type, at);
      const float kept = isfinite(v) ? 0.0f : v;
#pragma unroll
      for (int x = 0; x < kShare; ++x) {
        if (x == j) bad[x] = kept;
      }
    }
    bool sees[2];
#pragma unroll 1
    for (int r = 0; r < 2; ++r) {
      const int i = plan.row_of(row0 + fragment_row(r));
      const bool yes = i < s.m && visible(p, s, load_row(p, s, i), key0 + key);
      (r == 0 ? sees[0] : sees[1]) = yes;
    }
#pragma unroll
    for (int n = 0; n < Traits::kHeadDim / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int d = output_column<Traits>(e, n);
        float v = 0.0f;
#pragma unroll
        for (int x = 0; x < kShare; ++x) {
          const float y = __shfl_sync(~0u, bad[x], d / kShare);
          if (d % kShare == x) v = y;
        }
        if (sees[0]) mainloop.rO(cute::make_coord(e, 0), 0, n) += v;
        if (sees[1]) mainloop.rO(cute::make_coord(e, 1), 0, n) += v;
      }
    }
  }
  sync();  // everyone has looked
  for (int i = lane; i < kWords; i += 32) words[i] &= ~nonfinite_elements(type, words[i]);
  sync();
}

}  // namespace pagedecode::cuda
