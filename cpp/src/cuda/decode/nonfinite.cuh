// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// NaN and infinities in V under a mask. A masked probability is 0, but 0 times NaN is NaN: in a
// tile that some row sees in part, V's non-finite elements are set to zero in shared memory before
// the product, and what they add to the rows that see them is added to their columns by hand. (In
// tiles that every row sees, the product itself does that, with the same result.)
#pragma once

#include "cuda/decode/load_q.cuh"
#include "cuda/decode/mainloop.cuh"

namespace pagedecode::cuda {

// Of a word of elements: the exponents' bits, all of which are set where one is not finite.
// Integers have none.
__device__ __forceinline__ std::uint32_t exponent_bits(DType type) {
  switch (type) {
    case DType::kFloat16:
      return 0x7c007c00u;
    case DType::kBFloat16:
      return 0x7f807f80u;
    case DType::kFloat8E4M3:
      return 0x7f7f7f7fu;  // NaN alone
    case DType::kFloat8E5M2:
      return 0x7c7c7c7cu;
    default:
      return 0;
  }
}

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

// The elements of a word: two of 16 bits, or, with kBytes, four.
template <bool kBytes>
__device__ __forceinline__ void elements_of(DType type, std::uint32_t word,
                                            float (&x)[kBytes ? 4 : 2]) {
  if constexpr (kBytes) {
    const std::uint32_t in[1] = {word};
    std::uint32_t out[2];
    half2_from_bytes<1>(type, in, out);
    const float2 low = float2_from(DType::kFloat16, out[0]);
    const float2 high = float2_from(DType::kFloat16, out[1]);
    x[0] = low.x, x[1] = low.y, x[2] = high.x, x[3] = high.y;
  } else {
    const float2 both = float2_from(type, word);
    x[0] = both.x, x[1] = both.y;
  }
}

// Adds p * v to the accumulators of the rows that see them, for the elements of V that are not
// finite: those of the step's keys in `keys`. `rS` holds p in float32.
template <class Traits, class RS>
__device__ __forceinline__ void spread_nonfinite(DType type, std::uint32_t hidden,
                                                 std::uint32_t keys, const std::uint8_t* tile,
                                                 const RS& rS, Mainloop<Traits>& mainloop) {
  using Element = typename Traits::Element;
  constexpr int kCols = Traits::kStepKeys / 4;
  constexpr float kHidden = -1.0f;
  const typename Traits::KvLayout layout;
  const int t = lane_index() % 4;
#pragma unroll 1
  for (; keys != 0; keys &= keys - 1) {
    const int key = __ffs(keys) - 1;
    // The key's column in the threads that hold it, one of the four of each row.
    const int column = key / 8 * 2 + key % 2;
    float weight[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float p = kHidden;
#pragma unroll
      for (int c = 0; c < kCols; ++c) {
        if (c != column || (hidden >> (r * kCols + c) & 1)) continue;
        // As the product would take it: 0 times infinity is NaN there, too.
        p = static_cast<float>(static_cast<Element>(rS(cute::make_coord(c % 2, r), 0, c / 2)));
      }
      weight[r] = __shfl_sync(~0u, p, key % 8 / 2, 4);
    }
#pragma unroll
    for (int j = 0; j < Traits::kUnits / 8; ++j) {
      std::uint32_t word =
          *reinterpret_cast<const std::uint32_t*>(tile + 2 * layout(key, 8 * j + 2 * t));
      word &= nonfinite_elements(type, word);
      if (word == 0) continue;
      constexpr int kElements = Traits::kBytes ? 4 : 2;
      float x[kElements];
      elements_of<Traits::kBytes>(type, word, x);
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        // See output_column.
        const int e = Traits::kBytes ? i / 2 : i;
        const int n = Traits::kBytes ? 2 * j + i % 2 : j;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          if (weight[r] == kHidden) continue;
          float& o = mainloop.rO(cute::make_coord(e, r), 0, n);
          o = fmaf(weight[r], x[i], o);
        }
      }
    }
  }
}

// `tile`: V of a step, of a type as it lies in shared memory; `hidden` as of hidden_by_ranges.
// `sync` is a barrier of the warps that read the tile; all of them call this with the same one.
template <class Traits, class RS, class Sync>
__device__ __forceinline__ void take_out_nonfinite(DType type, std::uint32_t hidden,
                                                   std::uint8_t* tile, const RS& rS,
                                                   Mainloop<Traits>& mainloop, Sync&& sync) {
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
  spread_nonfinite<Traits>(type, hidden, keys, tile, rS, mainloop);
  sync();  // everyone has looked
#pragma unroll 1
  for (int i = lane; i < kWords; i += 32) words[i] &= ~nonfinite_elements(type, words[i]);
  sync();
}

}  // namespace pagedecode::cuda
