// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// NaN and infinities in V under a mask. A masked probability is 0, but 0 times NaN is NaN: in a
// tile that some row sees in part, V's non-finite elements are set to zero in shared memory before
// the product, and the rows that do see such a key become NaN. (In tiles that every row sees, the
// product itself spreads them, column by column.)
#pragma once

#include "cuda/decode/mainloop.cuh"

namespace pagedecode::cuda {

// Of a word of elements: all ones where one is not finite.
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

// `tile`: V of a step, of a type as it lies in shared memory; `hidden` as of hidden_by_ranges.
// `sync` is a barrier of the warps that read the tile; all of them call this with the same one.
template <class Traits, class Sync>
__device__ __forceinline__ void take_out_nonfinite(DType type, std::uint32_t hidden,
                                                   std::uint8_t* tile, Mainloop<Traits>& mainloop,
                                                   Sync&& sync) {
  constexpr int kWords = Traits::kStepKeys * Traits::kRowBytes / 4;
  constexpr int kRowWords = Traits::kRowBytes / 4;
  // Words of an 8-row block lie in atoms of 8 rows by up to 128 bytes.
  constexpr int kAtomRow = kRowWords < 32 ? kRowWords : 32;
  auto* words = reinterpret_cast<std::uint32_t*>(tile);
  const int lane = lane_index();
  std::uint32_t keys = 0;
#pragma unroll 4
  for (int i = lane; i < kWords; i += 32) {
    const int key = i / (8 * kRowWords) * 8 + i / kAtomRow % 8;
    keys |= std::uint32_t(nonfinite_elements(type, words[i]) != 0) << key;
  }
  keys = __reduce_or_sync(~0u, keys);
  if (keys == 0) return;
  constexpr int kCols = Traits::kStepKeys / 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    bool sees = false;
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      sees |= (keys >> fragment_key(c) & 1) && !(hidden >> (r * kCols + c) & 1);
    }
    const std::uint32_t who = __ballot_sync(~0u, sees) >> (lane / 4 * 4) & 0xf;
    if (who == 0) continue;
#pragma unroll
    for (int n = 0; n < Traits::kHeadDim / 8; ++n) {
      mainloop.rO(cute::make_coord(0, r), 0, n) = NAN;
      mainloop.rO(cute::make_coord(1, r), 0, n) = NAN;
    }
  }
  sync();  // everyone has looked
#pragma unroll 1
  for (int i = lane; i < kWords; i += 32) words[i] &= ~nonfinite_elements(type, words[i]);
  sync();
}

}  // namespace pagedecode::cuda
