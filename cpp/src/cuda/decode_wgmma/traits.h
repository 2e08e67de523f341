// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The compile-time side of one wgmma instance: types, tiles, shared memory.
//
//   T = kTileKeys  keys of a tile, M (64 a warpgroup) of S^T = K Q^T
//   D = kHeadDim   head dim, M (kBlocks times 64) of O^T = V^T P^T
//   N = kRows      query rows of a tile, N of both products
//
// kGroups consuming warpgroups share a tile, and no two of them read, or convert, the same part of
// K or V: of S^T each computes 64 keys; of O^T some blocks of the head dim, and, where there are
// more warpgroups than blocks, some of the keys (then the parts of O add up at the work's end).
//
// With query rows first (rows_mainloop.cuh) M is 64 of the rows a warpgroup, and N of S = Q K^T the
// keys; each warpgroup reads all of K and V, or, where two have the same 64 rows, every other tile.
// Where rows are first, 1-byte tiles are converted by two more warps, from a ring of their own
// (convert_tiles.cuh).
#pragma once

#include "cuda/decode/pipeline.cuh"
#include "cuda/decode/traits.h"
#include "cuda/decode_wgmma/variants.h"
#include "cuda/merge/state.h"
#include "cuda/schedule/locate.cuh"

namespace pagedecode::cuda {

// Registers of a thread at the launch: each of an SM's four parts has 16384 for its warps.
constexpr int launch_registers(int threads, int blocks_per_sm) {
  const int warps = threads / 32 * blocks_per_sm;
  const int registers = 16384 / (32 * ((warps + 3) / 4)) / 8 * 8;
  return registers < 248 ? registers : 248;
}

// Registers that a consuming thread may have once the loading warpgroup has kept `loader` of those
// that a block of `threads` was launched with.
constexpr int consumer_registers(int threads, int blocks_per_sm, int consumers, int loader) {
  const int launched = launch_registers(threads, blocks_per_sm);
  const int left = (launched * threads - loader * (threads - consumers)) / consumers / 8 * 8;
  return left < 232 ? left : 232;
}

template <int kIndex>
struct WgmmaTraits {
  static constexpr WgmmaVariant kVariant = kWgmmaVariants[kIndex];
  static constexpr bool kOneByte = kVariant.cache != CacheKind::kSame;
  using Element =
      std::conditional_t<kVariant.element == DType::kFloat16, cute::half_t, cute::bfloat16_t>;
  static constexpr bool kTma = kVariant.load == WgmmaLoad::kTma;
  static constexpr bool kRowsFirst = kVariant.order == WgmmaOrder::kRowsFirst;
  static constexpr bool kConverts = kOneByte && kRowsFirst;  // in shared memory
  static constexpr bool kBytes = kOneByte && !kConverts;     // in registers of the consumers
  // Splits: the kernel can gather them, and can do nothing else.
  static constexpr bool kGathers = wgmma_gathers(kVariant);
  static constexpr bool kGathersOnly = kVariant.use == WgmmaUse::kFewItems;
  static constexpr int kGroups = kVariant.groups;
  static constexpr int kConsumers = kGroups * 128;  // threads
  static constexpr int kConsumerWarps = kGroups * 4;
  // Several warpgroups take registers from the loading warps, which must be a warpgroup for that.
  static constexpr bool kMovesRegisters = kGroups > 1;
  // Warps that load, half of them K, half V: one warp cannot ask for small boxes fast enough for an
  // SM (pages of 16, 64 x 8192 keys, 8 and 32 rows of bf16: 563 and 589 us; 490 and 497 with four).
  // With three blocks an SM more than one would cost registers; with two a second costs none. A
  // copy takes a warp 84 clocks, so there are up to eight; 64 rows, or head dims of 256, of 1-byte
  // caches need the registers more than the loads.
  static constexpr bool kFourLoaders =
      kTma || kGroups == 1 || (kOneByte && (kVariant.rows > 32 || kVariant.head_dim > 128));
  static constexpr int kLoaders = kVariant.blocks_per_sm == 3                ? 1
                                  : kVariant.blocks_per_sm == 2 || kConverts ? 2
                                  : kFourLoaders                             ? 4
                                                                             : 8;
  static constexpr int kConverters = kConverts ? 2 : 0;  // warps
  static_assert(kTma || kVariant.blocks_per_sm == 1);
  // Those of K, or V, each with some rows of every tile.
  static constexpr int kShares = kLoaders > 1 ? kLoaders / 2 : 1;
  static constexpr int kThreads = kConsumers + (kLoaders + kConverters) * 32;
  // With 8 fewer they spill, which rows first of D 256 would rather have than fewer of its own.
  static constexpr int kLoaderRegisters = kConverts                               ? 112
                                          : kRowsFirst && kVariant.head_dim > 128 ? 72
                                          : kLoaders == 8                         ? 80
                                                                                  : 88;
  static constexpr int kConsumerRegisters =
      kMovesRegisters
          ? consumer_registers(kThreads, kVariant.blocks_per_sm, kConsumers, kLoaderRegisters)
          : launch_registers(kThreads, kVariant.blocks_per_sm);
  // Warpgroups with the same rows, each of which has tiles of its own.
  static constexpr int kTeams = kRowsFirst ? kGroups * 64 / kVariant.rows : 1;
  static constexpr int kTeam = kConsumers / kTeams;  // threads
  // A team waits for tiles of its own alone: those before, of a stage's round before, have landed.
  static_assert(kTeams == 1 || kConverts || wgmma_flight(kVariant) + kTeams <= kVariant.stages);
  static constexpr int kTileKeys = wgmma_keys(kVariant);
  static constexpr int kTileLog2 = log2_of(kTileKeys);
  static constexpr int kKeyWords = kTileKeys / 64;         // of a bit for each key
  static constexpr int kLoaderRows = kTileKeys / kShares;  // of a tile, of a warp
  static constexpr int kHeadDim = kVariant.head_dim;
  static constexpr int kBlocks = kHeadDim / 64;
  static constexpr int kDimGroups = kGroups < kBlocks ? kGroups : kBlocks;  // that share out D
  static constexpr int kOwnBlocks = kBlocks / kDimGroups;
  static constexpr int kKeyGroups = kGroups / kDimGroups;  // that share out a tile's keys for O^T
  static constexpr int kOwnKeys = kTileKeys / kKeyGroups;
  static constexpr int kOutThreads = kConsumers / kKeyGroups;  // that hold O at a work's end
  static_assert(kGroups == kDimGroups * kKeyGroups && kBlocks == kDimGroups * kOwnBlocks);
  static constexpr int kRows = kVariant.rows;
  // A row of K or V lies in shared memory in parts of at most 128 bytes: as it is loaded, and as
  // the products read it, which differ where tiles are converted.
  static constexpr int kLoadStages = kVariant.stages;
  static constexpr int kLoadPartBytes = wgmma_part_bytes(kHeadDim, kOneByte);
  static constexpr int kLoadParts = kHeadDim * (kOneByte ? 1 : 2) / kLoadPartBytes;
  static constexpr int kLoadPartTile = kTileKeys * kLoadPartBytes;
  static constexpr int kLoadTileBytes = kLoadParts * kLoadPartTile;  // of K, or V
  static constexpr int kStages = kConverts ? 3 : kLoadStages;
  static constexpr int kPartBytes = kConverts ? 128 : kLoadPartBytes;
  static constexpr int kParts = kHeadDim * (kBytes ? 1 : 2) / kPartBytes;
  static constexpr int kPartTile = kTileKeys * kPartBytes;
  static constexpr int kTileBytes = kParts * kPartTile;

  // The next tile's S^T beside this tile's O^T. Not where keys pass through registers of which
  // there are few: those of both products are too many. There, products begin once half of their
  // keys is converted, instead (with both, ptxas serialises all products).
  static constexpr bool kOverlap = !kBytes || kMovesRegisters;
  static constexpr int kHalves = kOverlap ? 1 : 2;

  // Of a buffer of P; Q and both buffers, or, for teams, these alone, hold the epilogue's exchange
  // (N, D) of float, too.
  static constexpr int kPBytes = kTeams > 1 ? kRows* kHeadDim * 2
                                 : kRowsFirst
                                     ? 16
                                     : kRows*(kHeadDim > 2 * kTileKeys ? kHeadDim : 2 * kTileKeys);
  static constexpr int kPRowBlock = kTileKeys * 16;           // bytes of 8 rows of P
  static constexpr int kSharedRows = kRowsFirst ? 1 : kRows;  // that lie in several warps

  // The place of a chunk of 16 bytes in a part of K or V.
  template <int kBytesOfPart = kPartBytes>
  __device__ __forceinline__ static int place(int token, int chunk) {
    return token * kBytesOfPart +
           ((chunk ^ (kBytesOfPart == 128 ? token % 8 : token / 2 % 4)) * 16);
  }

  // The type of a cache: known when compiling, where there is an instance for it alone.
  __device__ __forceinline__ static DType type_of(const CacheView& cache) {
    return kVariant.cache == CacheKind::kE4M3 ? DType::kFloat8E4M3 : cache.dtype;
  }
  // Of V's elements where the consumers read them.
  __device__ __forceinline__ static DType type_of_values(const CacheView& v) {
    return kConverts ? kVariant.element : v.dtype;
  }
};

// Tiles on their way to the warps that convert them: the same as of WgmmaStorage.
template <class Traits>
struct alignas(1024) WgmmaLoadRing {
  std::uint8_t kv[Traits::kLoadStages][2][Traits::kLoadTileBytes];
  Barrier full_k[Traits::kLoadStages];
  Barrier full_v[Traits::kLoadStages];
  Barrier empty_k[Traits::kLoadStages];
  Barrier empty_v[Traits::kLoadStages];
  std::uint64_t bad[Traits::kLoadStages][Traits::kKeyWords];
};
struct NoLoadRing {};
struct NoGathers {};

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
    // Largest logits, or sums, of each warp's keys.
    float by_warp[Traits::kSharedRows][Traits::kConsumerWarps];
    LocateStorage<BlockScope> locate;
  };
  // Of each warp that loads: one may still locate when another has handed a work over.
  LocateStorage<WarpScope> locates[Traits::kLoaders];
  // At a work's end, of each row: its reference, its sum, then what its values are multiplied by.
  float ref[Traits::kSharedRows];
  float sum[Traits::kSharedRows];
  SoftmaxState of_team[Traits::kTeams > 1 ? Traits::kRows : 1];  // the second's
  float scale[Traits::kOneByte ? Traits::kRows : 1];  // of raw products, to logits in base 2
  alignas(16) Work works[kWgmmaWorks];
  // Split items that the chunk begins in, and ends in, gathered at the end; splits is 1 if none.
  std::conditional_t<Traits::kGathers, Work[2], NoGathers> gathers;
  Barrier full_k[Traits::kStages];
  Barrier full_v[Traits::kStages];
  Barrier empty_k[Traits::kStages];
  Barrier empty_v[Traits::kStages];
  Barrier full_work[kWgmmaWorks];
  Barrier empty_work[kWgmmaWorks];
  // Bit i % 64 of word i / 64: key i of the tile lies in a page out of the pool.
  std::uint64_t bad[Traits::kStages][Traits::kKeyWords];
  std::conditional_t<Traits::kConverts, WgmmaLoadRing<Traits>, NoLoadRing> loads;

  // Where the loading warps bring tiles.
  __device__ __forceinline__ auto& load_ring() {
    if constexpr (Traits::kConverts) {
      return loads;
    } else {
      return *this;
    }
  }
};

// Tiles of a work.
template <class Traits>
__device__ __forceinline__ int tiles_of(const Work& w) {
  constexpr int kLog2 = Traits::kTileLog2;
  return w.begin < w.end ? ((w.end - 1) >> kLog2) - (w.begin >> kLog2) + 1 : 0;
}

// Whether split items are gathered at the end, not folded as they are done.
template <class Traits>
__device__ __forceinline__ bool gathers(const Plan& plan) {
  return Traits::kGathersOnly || (Traits::kGathers && plan.exchange);
}

// Barrier of the consuming warps.
template <class Traits>
__device__ __forceinline__ void sync_consumers() {
  named_sync(1, Traits::kConsumers);
}

// The same, and whether any thread says yes.
template <class Traits>
__device__ __forceinline__ bool any_of_consumers(bool yes) {
  return any_of<1, Traits::kConsumers>(yes);
}

// Those that share a tile: all, or a team, which has a barrier of its own.
template <class Traits>
__device__ __forceinline__ bool any_of_team(bool yes) {
  if constexpr (Traits::kTeams == 1) {
    return any_of_consumers<Traits>(yes);
  } else {
    static_assert(Traits::kTeams == 2);
    if (thread_index() < Traits::kTeam) return any_of<2, Traits::kTeam>(yes);
    return any_of<3, Traits::kTeam>(yes);
  }
}
template <class Traits>
__device__ __forceinline__ void sync_team() {
  any_of_team<Traits>(false);
}

// What this thread stored to shared memory is visible to wgmma and TMA after the next barrier.
__device__ __forceinline__ void fence_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}

}  // namespace pagedecode::cuda
