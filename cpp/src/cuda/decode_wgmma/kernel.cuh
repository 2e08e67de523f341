// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Paged decode attention on wgmma and TMA, for sm_90a, in one launch of a fixed grid.
//   1. Each block finds its chunk of keys from the lengths (schedule/).
//   2. Its loading warps keep the stages full, over the ends of works (load.cuh); where many rows
//      share 1-byte keys, two more convert the tiles (convert_tiles.cuh).
//   3. Its consuming warpgroups walk the tiles: S^T = K Q^T, softmax, O^T += V^T P^T
//      (mainloop.cuh), or, for many rows, S = Q K^T, softmax, O += P V (rows_mainloop.cuh).
//   4. At a work's end they write rows or a partial state (epilogue.cuh, rows_epilogue.cuh). The
//      last block of a split item folds its splits (merge/); or, where items are few, all blocks
//      gather them together at the end (gather.cuh).
// A block has an SM alone, or two or three share it (variants.h says what is better where): while
// one warpgroup waits for its serial chain, the others work.
#pragma once

#include "cuda/decode_wgmma/convert_tiles.cuh"
#include "cuda/decode_wgmma/epilogue.cuh"
#include "cuda/decode_wgmma/load.cuh"
#include "cuda/decode_wgmma/rows_epilogue.cuh"

namespace pagedecode::cuda {

template <class Traits>
using WgmmaMainloopOf =
    std::conditional_t<Traits::kRowsFirst, RowsMainloop<Traits>, WgmmaMainloop<Traits>>;

template <class Traits>
__device__ __forceinline__ void consume_works(const DecodeProblem& p, const Plan& plan,
                                              WgmmaStorage<Traits>& shared) {
  RingPosition ring;  // of stages
  RingPosition works;
  const auto next_work = [&]() -> const Work& {
    shared.full_work[works.stage].wait(works.parity);
    const Work& w = shared.works[works.stage];
    works.advance(kWgmmaWorks);
    return w;
  };
  WgmmaQ<Traits> q;
  const Work* work = &next_work();
  if (WgmmaQ<Traits>::kEarly && work->seq >= 0) q.fetch(p, plan, *work);
#pragma unroll 1
  while (work->seq >= 0) {
    const Work& w = *work;
    if (!WgmmaQ<Traits>::kEarly) q.fetch(p, plan, w);
    store_wgmma_q<Traits>(p, w, q, shared);
    fence_async();
    sync_consumers<Traits>();
    const int edge = window_edge<true>(p, plan, w);
    // NOTE: accumulators live in this scope, so that they leave their registers to the merge.
    WgmmaMainloopOf<Traits> mainloop(p, plan, shared);
    mainloop.run(w, edge, ring);
    // The next work's Q travels while this work ends.
    work = &next_work();
    if (WgmmaQ<Traits>::kEarly && work->seq >= 0) q.fetch(p, plan, *work);
    write_wgmma_state<Traits>(p, plan, w, mainloop, shared);
    __syncwarp();  // all lanes have read it
    if (thread_index() % 32 == 0) shared.empty_work[&w - shared.works].arrive();
  }
  if constexpr (Traits::kGathers) {
    if (!gathers<Traits>(plan)) return;
#pragma unroll 1
    for (const Work& w : shared.gathers) {
      if (w.splits > 1) WgmmaGather<Traits>(p, plan, w).run();
    }
  }
}

template <int kStages, class Ring>
__device__ __forceinline__ void init_ring(Ring& ring, int full_k, int full_v, int empty) {
  for (int i = 0; i < kStages; ++i) {
    ring.full_k[i].init(full_k);
    ring.full_v[i].init(full_v);
    ring.empty_k[i].init(empty);
    ring.empty_v[i].init(empty);
  }
}

template <class Traits>
__global__ void __launch_bounds__(Traits::kThreads, Traits::kVariant.blocks_per_sm)
    decode_wgmma_kernel(const __grid_constant__ DecodeProblem p, const __grid_constant__ Plan plan,
                        const __grid_constant__ CUtensorMap k,
                        const __grid_constant__ CUtensorMap v) {
  extern __shared__ __align__(1024) std::uint8_t smem[];
  auto& shared = *reinterpret_cast<WgmmaStorage<Traits>*>(smem);
  const int head_lane = blockIdx.x % plan.heads;
  const int chunk = blockIdx.x / plan.heads;
  if (threadIdx.x == 0) {
    // Of each loading warp, by TMA, one lane arrives; else all do, and, for K, one once more, which
    // has told of bad pages.
    constexpr int kFullK = Traits::kShares * (Traits::kTma ? 1 : 33);
    constexpr int kFullV = Traits::kShares * (Traits::kTma ? 1 : 32);
    constexpr int kEmpty = Traits::kConsumerWarps / Traits::kTeams * kWarpArrivals;
    if constexpr (Traits::kConverts) {
      init_ring<Traits::kLoadStages>(shared.loads, kFullK, kFullV, kWarpArrivals);
      init_ring<Traits::kStages>(shared, kWarpArrivals, kWarpArrivals, kEmpty);
    } else {
      init_ring<Traits::kStages>(shared, kFullK, kFullV, kEmpty);
    }
    for (int i = 0; i < kWgmmaWorks; ++i) {
      shared.full_work[i].init(1);
      shared.empty_work[i].init(Traits::kConsumerWarps + Traits::kConverters);
    }
    if constexpr (Traits::kGathers) shared.gathers[0].splits = shared.gathers[1].splits = 1;
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    fence_async();
  }
  if (threadIdx.x == Traits::kConsumers) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&k) : "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(&v) : "memory");
  }
  __syncthreads();
  ChunkStart start;
  const bool alone = p.batch <= kWarpLocates;
  if (!alone) start = locate_chunk(p, plan, chunk, shared.locate);
  if (threadIdx.x >= Traits::kConsumers) {
    const int warp = threadIdx.x / 32 - Traits::kConsumerWarps;
    if (alone && warp < Traits::kLoaders) {
      start = locate_chunk(p, plan, chunk, shared.locates[warp]);
    }
    if constexpr (Traits::kMovesRegisters) {
      asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Traits::kLoaderRegisters));
    }
    if (warp < Traits::kLoaders) {
      WgmmaLoader<Traits> loader(p, plan, k, v, shared);
#pragma unroll 1
      for (int head = head_lane; head < p.num_kv_heads; head += plan.heads) {
        loader.load_head(start, chunk, head_lane, head);
      }
      if (warp == WgmmaLoader<Traits>::kHandsOver) loader.finish();
    } else if constexpr (Traits::kConverts) {
      convert_works<Traits>(p, shared, warp - Traits::kLoaders);
    }
  } else {
    if constexpr (Traits::kMovesRegisters) {
      asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Traits::kConsumerRegisters));
    }
    consume_works<Traits>(p, plan, shared);
  }
}

}  // namespace pagedecode::cuda
