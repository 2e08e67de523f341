// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Paged decode attention on mma.sync, for any GPU from sm_80 on, in one launch of a fixed grid:
//   1. each block finds its chunk of keys from the lengths (schedule/);
//   2. each warp keeps a ring of sub-tiles in flight with cp.async, ahead over items (load.cuh);
//   3. teams of warps (one warp up to 32 rows) walk the keys with an online softmax of their own,
//      without block barriers (mainloop.cuh, softmax.cuh);
//   4. at an item's end the teams fold (epilogue.cuh); the last block of a split item folds its
//      splits (merge/).
// Rows are flattened (row i, head j of the group): all m x group rows of a sequence and KV head
// share each load of a key.
#pragma once

#include "cuda/decode/epilogue.cuh"
#include "cuda/decode/load.cuh"
#include "cuda/decode/load_q.cuh"
#include "cuda/decode/nonfinite.cuh"
#include "cuda/schedule/locate.cuh"

#ifdef PD_PROFILE
#define PD_STAMP(n) if (threadIdx.x == 0) plan.counters[12288 + blockIdx.x * 12 + n] = clock()
#else
#define PD_STAMP(n)
#endif

namespace pagedecode::cuda {

template <class Traits>
struct BlockState {
  const DecodeProblem& p;
  const Plan& plan;
  std::uint8_t* smem;
  SharedPlan at;

  __device__ Work* ring() const {  // of this warp
    return reinterpret_cast<Work*>(smem + at.work) + threadIdx.x / 32 * (plan.stages + 1);
  }
  __device__ std::uint32_t* bad() const { return reinterpret_cast<std::uint32_t*>(smem + at.bad); }
  __device__ bool* flag() const { return reinterpret_cast<bool*>(smem + at.flag); }
  __device__ float* row_scale() const { return reinterpret_cast<float*>(smem + at.row_scale); }

  // Barrier of the warps that share keys.
  __device__ __forceinline__ void sync_team() const {
    if (plan.team_warps == 1) {
      __syncwarp();
    } else {
      const int team = threadIdx.x / 32 / plan.team_warps;
      asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "r"(plan.team_warps * 32) : "memory");
    }
  }
};

// One sub-tile of one warp.
template <class Traits>
__device__ __forceinline__ void consume(const BlockState<Traits>& b, const Work& w, int head,
                                        int row0, const typename Traits::Element* q, int key0,
                                        int edge, int warp, int stage, Mainloop<Traits>& mainloop) {
  using Loop = Mainloop<Traits>;
  const DecodeProblem& p = b.p;
  std::uint8_t* k_tile = b.smem + (stage * b.plan.warps + warp) * Traits::kStageBytes;
  std::uint8_t* v_tile = k_tile + Traits::kStageBytes / 2;
  const DType k_type = Traits::kConverting ? p.q.dtype : p.k.dtype;
  const DType v_type = Traits::kConverting ? p.q.dtype : p.v.dtype;
  auto rS = cute::make_tensor<float>(typename Loop::SLayout{});
  mainloop.scores(q, k_tile, k_type, rS);

  constexpr int kCols = Loop::kKeys / 4;
  float scale[Loop::kRows];
#pragma unroll
  for (int r = 0; r < Loop::kRows; ++r) scale[r] = mainloop.scale[r];
  if (p.softcap > 0.0f || p.alibi_slopes) {
    float natural[Loop::kRows];
#pragma unroll
    for (int r = 0; r < Loop::kRows; ++r) {
      natural[r] = scale[r] * kLn2;
      scale[r] = 1.0f;
    }
    apply_options<Loop::kRows, kCols>(p, w, head, row0, key0, natural, [&](int r, int c) -> float& {
      return rS(cute::make_coord(c % 2, r % 2), r / 2, c / 2);
    });
  }
  const std::uint32_t bad = b.bad()[warp * b.plan.stages + stage];
  const bool masked = key0 + Loop::kKeys > w.n - w.m || key0 < edge || bad != 0;
  if (!masked) {
    mainloop.softmax.template step<false>(rS, mainloop.rO, scale, 0);
  } else {
    const std::uint32_t hidden = hidden_bits<Loop::kRows, kCols>(p, w, row0, key0);
    if (bad != 0) {
#pragma unroll
      for (int c = 0; c < kCols; ++c) {
        if (!(bad >> fragment_key(c) & 1)) continue;
#pragma unroll
        for (int r = 0; r < Loop::kRows; ++r) {
          rS(cute::make_coord(c % 2, r % 2), r / 2, c / 2) = NAN;
        }
      }
    }
    mainloop.softmax.template step<true>(rS, mainloop.rO, scale, hidden);
    take_out_nonfinite(p, w, row0, key0, v_type, v_tile, mainloop, [&] { b.sync_team(); });
  }
  mainloop.accumulate(v_tile, v_type, rS);
}

template <class Traits>
__device__ void run_head(const BlockState<Traits>& b, const ChunkStart& start, int chunk,
                         int head_lane, int head) {
  using Element = typename Traits::Element;
  const DecodeProblem& p = b.p;
  const Plan& plan = b.plan;
  const int warp = threadIdx.x / 32;
  const int team_begin = warp / plan.team_warps * plan.team_warps;
  const int row_of_team = (warp - team_begin) * Traits::kWarpRows;
  const auto* q = reinterpret_cast<const Element*>(b.smem + b.at.q) +
                  row_of_team * Traits::kHeadDim;
  WorkIterator works(p, plan, start, chunk, head_lane);
  CacheLoader<Traits> loader(p, plan, works, head, b.smem, b.ring(), b.bad());
  for (int i = 0; i < plan.stages - 1; ++i) loader.issue(i);

  PD_STAMP(2);
  Mainloop<Traits> mainloop;
  int stage = 0;
  for (int done = 0; done < loader.begun(); ++done) {
    __syncwarp();
    const Work& w = b.ring()[done % (plan.stages + 1)];
    load_q<Traits>(p, plan, w, head, b.smem + b.at.q, b.row_scale());
    __syncthreads();
    PD_STAMP(3);
    mainloop.begin(q);
    const float scale = p.softmax_scale * p.k_scale[head] * kLog2e;
#pragma unroll
    for (int r = 0; r < Mainloop<Traits>::kRows; ++r) {
      mainloop.scale[r] =
          Traits::kBytes ? scale * b.row_scale()[row_of_team + fragment_row(r)] : scale;
    }
    const int edge = window_edge(p, plan, w);
    const int row0 = w.row0 + row_of_team;
    int key = w.begin / plan.tile_keys * plan.tile_keys;
    do {
      cp_async_wait_stages(plan.stages - 2);
      b.sync_team();
      PD_STAMP(4);
      loader.issue(stage == 0 ? plan.stages - 1 : stage - 1);
#pragma unroll 1
      for (int from = team_begin; from < team_begin + plan.team_warps; ++from) {
        const int key0 = key + from * Traits::kKeys;
        if (key0 >= w.end || key0 + Traits::kKeys <= w.begin) continue;
        consume(b, w, head, row0, q, key0, edge, from, stage, mainloop);
      }
      if (++stage == plan.stages) stage = 0;
      key += plan.tile_keys;
    } while (key < w.end);

    PD_STAMP(5);
    write_state(p, plan, w, head, mainloop, b.smem + b.at.q);
    PD_STAMP(6);
    if (w.splits > 1 && plan.partition != Partition::kWholeItems) {
      merge_splits<Traits::kHeadDim>(p, plan, w, head, b.flag());
    }
    PD_STAMP(7);
    __syncthreads();
  }
  cute::cp_async_wait<0>();
  __syncthreads();
}

template <class Traits>
__global__ void __launch_bounds__(128, Traits::kVariant.blocks_per_sm())
    decode_kernel(const __grid_constant__ DecodeProblem p, const __grid_constant__ Plan plan) {
  extern __shared__ __align__(1024) std::uint8_t smem[];
  const int head_lane = blockIdx.x % plan.heads;
  const int chunk = blockIdx.x / plan.heads;
  PD_STAMP(0);
  const ChunkStart start =
      locate_chunk(p, plan, chunk, *reinterpret_cast<LocateStorage*>(smem));
  __syncthreads();
  PD_STAMP(1);
  if (start.total == 0) return;
  constexpr Variant kVariant = Traits::kVariant;
  const BlockState<Traits> b{p, plan, smem, shared_plan(kVariant, plan)};
  for (int head = head_lane; head < p.num_kv_heads; head += plan.heads) {
    run_head(b, start, chunk, head_lane, head);
  }
}

}  // namespace pagedecode::cuda
