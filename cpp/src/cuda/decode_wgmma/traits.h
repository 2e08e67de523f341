// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The compile-time side of one wgmma instance: types, tiles, shared memory.
//
//   T = kWgmmaKeys  keys of a tile, M of S^T = K Q^T
//   D = kHeadDim    head dim, M (kBlocks times 64) of O^T = V^T P^T
//   N = kRows       query rows of a tile, N of both products
#pragma once

#include "cuda/decode/pipeline.cuh"
#include "cuda/decode/traits.h"
#include "cuda/decode_wgmma/variants.h"
#include "cuda/merge/state.h"
#include "cuda/schedule/locate.cuh"

namespace pagedecode::cuda {

template <int kIndex>
struct WgmmaTraits {
  static constexpr WgmmaVariant kVariant = kWgmmaVariants[kIndex];
  static constexpr bool kBytes = kVariant.cache != CacheKind::kSame;
  using Element =
      std::conditional_t<kVariant.element == DType::kFloat16, cute::half_t, cute::bfloat16_t>;
  static constexpr bool kTma = kVariant.load == WgmmaLoad::kTma;
  // Warps that load: one for TMA; by copies, which take it 84 clocks each, one for K and one for V.
  static constexpr int kLoaders = kTma ? 1 : 2;
  static constexpr int kThreads = (kWarps + kLoaders) * 32;
  static constexpr int kHeadDim = kVariant.head_dim;
  static constexpr int kBlocks = kHeadDim / 64;
  static constexpr int kRows = kVariant.rows;
  static constexpr int kStages = kVariant.stages;
  // A row of K or V lies in shared memory in parts of at most 128 bytes.
  static constexpr int kPartBytes = wgmma_part_bytes(kHeadDim, kBytes);
  static constexpr int kParts = kHeadDim * (kBytes ? 1 : 2) / kPartBytes;
  static constexpr int kPartTile = kWgmmaKeys * kPartBytes;
  static constexpr int kTileBytes = kParts * kPartTile;  // of K, or V

  // The next tile's S^T beside this tile's O^T. Not where keys pass through registers: those of
  // both products are too many.
  static constexpr bool kOverlap = !kBytes;

  // Of a buffer of P; Q and both buffers hold the epilogue's exchange (N, D) of float, too.
  static constexpr int kPBytes = kRows * (kHeadDim > 2 * kWgmmaKeys ? kHeadDim : 2 * kWgmmaKeys);

  // The place of a chunk of 16 bytes in a part of K or V.
  __device__ __forceinline__ static int place(int token, int chunk) {
    return token * kPartBytes + ((chunk ^ (kPartBytes == 128 ? token % 8 : token / 2 % 4)) * 16);
  }

  // The type of a cache: known when compiling, where there is an instance for it alone.
  __device__ __forceinline__ static DType type_of(const CacheView& cache) {
    return kVariant.cache == CacheKind::kE4M3 ? DType::kFloat8E4M3 : cache.dtype;
  }
};

// Shared memory of a block.
template <class Traits>
struct WgmmaStorage {
  // K, V of a stage: [kParts](T, kPartBytes), swizzled over kPartBytes
  std::uint8_t kv[Traits::kStages][2][Traits::kTileBytes];
  // Q: [kBlocks](N, 64), 128-byte swizzle. Q and P are the epilogue's exchange (N, D) of float,
  // too.
  std::uint8_t q[Traits::kRows * Traits::kHeadDim * 2];
  // P: two buffers in turn (N, T): a warp may store the next P while another's product reads this.
  std::uint8_t p[2][Traits::kPBytes];
  union {
    float by_warp[Traits::kRows][kWarps];  // largest logits, or sums, of each warp's keys
    LocateStorage locate;
  };
  // Of the second loading warp, which may still locate when the first has handed a work over.
  std::conditional_t<Traits::kTma, char, LocateStorage> second_locate;
  float ref[Traits::kRows];  // at a work's end, of each row: its reference, its sum, then what its
  float sum[Traits::kRows];  // values are multiplied by
  float scale[Traits::kBytes ? Traits::kRows : 1];  // of raw products, to logits in base 2
  alignas(16) Work works[kWgmmaWorks];
  Barrier full_k[Traits::kStages];
  Barrier full_v[Traits::kStages];
  Barrier empty_k[Traits::kStages];
  Barrier empty_v[Traits::kStages];
  Barrier full_work[kWgmmaWorks];
  Barrier empty_work[kWgmmaWorks];
  std::uint64_t bad[Traits::kStages];  // bit i: key i of the tile lies in a page out of the pool
  bool last;                           // whether this block is the last of an item's splits
};

inline constexpr int kWgmmaConsumers = kWarps * 32;

// Barrier of the consuming warps.
__device__ __forceinline__ void sync_consumers() { named_sync(1, kWgmmaConsumers); }

// The same, and whether any thread says yes.
__device__ __forceinline__ bool any_of_consumers(bool yes) {
  std::uint32_t any;
  asm volatile(
      "{\n.reg .pred p, q;\nsetp.ne.u32 p, %1, 0;\nbarrier.cta.red.or.aligned.pred q, 1, 128, p;\n"
      "selp.u32 %0, 1, 0, q;\n}"
      : "=r"(any)
      : "r"(std::uint32_t(yes))
      : "memory");
  return any != 0;
}

// What this thread stored to shared memory is visible to wgmma and TMA after the next barrier.
__device__ __forceinline__ void fence_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}

}  // namespace pagedecode::cuda
