// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Paged decode attention on mma.sync, for any GPU from sm_80 on, in one launch of a fixed grid:
//   1. each block finds its chunk of keys from the lengths (schedule/);
//   2. each warp keeps a ring of sub-tiles in flight with cp.async, ahead over items (load.cuh);
//   3. teams of warps (one warp up to 16 rows) walk the keys with an online softmax of their own,
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

// One step of one warp: kStepKeys keys from tile `from` of a stage on.
template <class Traits>
__device__ __forceinline__ void consume(const BlockState<Traits>& b, const Work& w, int head,
                                        int row0, const typename Traits::Element* q, int key0,
                                        int edge, const int (&own)[2], int from, int stage,
                                        Mainloop<Traits>& mainloop) {
  using Loop = Mainloop<Traits>;
  const DecodeProblem& p = b.p;
  std::uint8_t* k_tile = b.smem + Traits::tile_offset(b.plan, stage, from);
  std::uint8_t* v_tile = k_tile + b.plan.warps * Traits::kTileBytes;
  const DType k_type = Traits::kConverting ? p.q.dtype : p.k.dtype;
  const DType v_type = Traits::kConverting ? p.q.dtype : p.v.dtype;
  auto rS = cute::make_tensor<float>(typename Loop::SLayout{});
  mainloop.scores(q, k_tile, k_type, rS);

  constexpr int kCols = Loop::kKeys / 4;
  float scale[2] = {mainloop.scale[0], mainloop.scale[1]};
  if (p.softcap > 0.0f || p.alibi_slopes) {
    const float natural[2] = {scale[0] * kLn2, scale[1] * kLn2};
    scale[0] = scale[1] = 1.0f;
    apply_options<kCols>(p, b.plan, w, head, row0, key0, natural, [&](int r, int c) -> float& {
      return rS(cute::make_coord(c % 2, r), 0, c / 2);
    });
  }
  std::uint32_t bad = b.bad()[from * b.plan.stages + stage];
  if constexpr (Traits::kStepKeys > Traits::kKeys) {
    bad |= b.bad()[(from + 1) * b.plan.stages + stage] << Traits::kKeys;
  }
  if (key0 + Loop::kKeys <= w.n - w.m && key0 >= edge && bad == 0) {
    mainloop.softmax.template step<false>(rS, mainloop.rO, scale, 0);
  } else {
    const std::uint32_t hidden = ranges_only(p)
                                     ? hidden_by_ranges<kCols>(p, w, own, key0)
                                     : hidden_by_rule<kCols>(p, b.plan, w, row0, key0);
    if (bad != 0) {
#pragma unroll
      for (int c = 0; c < kCols; ++c) {
        if (!(bad >> fragment_key(c) & 1)) continue;
        rS(cute::make_coord(c % 2, 0), 0, c / 2) = NAN;
        rS(cute::make_coord(c % 2, 1), 0, c / 2) = NAN;
      }
    }
    mainloop.softmax.template step<true>(rS, mainloop.rO, scale, hidden);
    // With one row and no window or mask, no key that exists is hidden.
    if (w.m > 1 || p.window_left >= 0 || p.draft_mask.kind != MaskKind::kNone) {
      take_out_nonfinite(p, b.plan, w, row0, key0, v_type, v_tile, mainloop,
                         [&] { b.sync_team(); });
    }
  }
  mainloop.accumulate(v_tile, v_type, rS);
}

// What begins a work: its Q, and what each row sees at most.
template <class Traits>
__device__ __forceinline__ void begin_work(const BlockState<Traits>& b, const Work& w, int head,
                                           int row_of_team, const typename Traits::Element* q,
                                           int (&own)[2], Mainloop<Traits>& mainloop) {
  const DecodeProblem& p = b.p;
  load_q<Traits>(p, b.plan, w, head, b.smem + b.at.q, b.row_scale());
  __syncthreads();
  mainloop.begin(q);
  const float scale = p.softmax_scale * p.k_scale[head] * kLog2e;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    mainloop.scale[r] =
        Traits::kBytes ? scale * b.row_scale()[row_of_team + fragment_row(r)] : scale;
    own[r] = w.n - w.m + b.plan.row_of(w.row0 + row_of_team + fragment_row(r));
  }
}

template <class Traits>
__device__ void run_head(const BlockState<Traits>& b, const ChunkStart& start, int chunk,
                         int head_lane, int head) {
  using Element = typename Traits::Element;
  const DecodeProblem& p = b.p;
  const Plan& plan = b.plan;
  const int warp = threadIdx.x / 32;
  const int team_begin = warp / plan.team_warps * plan.team_warps;
  const int row_of_team = (warp - team_begin) * kWarpRows;
  const auto* q = reinterpret_cast<const Element*>(b.smem + b.at.q) +
                  row_of_team * Traits::kHeadDim;

  WorkIterator works(p, plan, start, chunk, head_lane);
  CacheLoader<Traits> loader(p, plan, works, head, b.smem, b.ring(), b.bad());
  Mainloop<Traits> mainloop;
  int own[2] = {0, 0};
  int edge = 0;
  int key = -1;    // of the step that is consumed next; -1: the next work's first
  int stage = 0;   // of that step
  int done = 0;    // works finished
  int ahead = 0;   // steps issued and not yet consumed, up to stages - 1
  // One place where loads are issued, one where they are consumed: while the pipeline fills, the
  // loop only issues.
  while (done < loader.begun()) {
    const bool filling = ahead < plan.stages - 1;
    if (!filling) {
      cp_async_wait_stages(plan.stages - 2);
      b.sync_team();
    }
    int to = stage + ahead;
    if (to >= plan.stages) to -= plan.stages;
    loader.issue(to);
    if (filling) {
      ++ahead;
      continue;
    }
    const Work& w = b.ring()[done % (plan.stages + 1)];
    if (key < 0) {
      begin_work(b, w, head, row_of_team, q, own, mainloop);
      edge = p.window_left < 0 ? 0 : window_edge(p, plan, w);
      key = w.begin >> plan.tile_log2 << plan.tile_log2;
    }
    constexpr int kTiles = Traits::kStepKeys / Traits::kKeys;
#pragma unroll 1
    for (int from = team_begin; from < team_begin + plan.team_warps; from += kTiles) {
      const int key0 = key + from * Traits::kKeys;
      if (key0 >= w.end || key0 + Traits::kStepKeys <= w.begin || w.begin >= w.end) continue;
      consume(b, w, head, w.row0 + row_of_team, q, key0, edge, own, from, stage, mainloop);
    }
    if (++stage == plan.stages) stage = 0;
    key += plan.tile_keys();
    if (key < w.end) continue;

    write_state(p, plan, w, head, mainloop, b.smem + b.at.q);
    if (w.splits > 1 && plan.partition != Partition::kWholeItems) {
      merge_splits<Traits::kHeadDim>(p, plan, w, head, b.flag());
    }
    __syncthreads();
    key = -1;
    ++done;
  }
  cute::cp_async_wait<0>();
  __syncthreads();
}

template <class Traits>
__global__ void __launch_bounds__(128, Traits::kVariant.blocks_per_sm)
    decode_kernel(const __grid_constant__ DecodeProblem p, const __grid_constant__ Plan plan) {
  extern __shared__ __align__(1024) std::uint8_t smem[];
  const int head_lane = blockIdx.x % plan.heads;
  const int chunk = blockIdx.x / plan.heads;
  const ChunkStart start =
      locate_chunk(p, plan, chunk, *reinterpret_cast<LocateStorage*>(smem));
  constexpr Variant kVariant = Traits::kVariant;
  const BlockState<Traits> b{p, plan, smem, shared_plan(kVariant, plan)};
  for (int head = head_lane; head < p.num_kv_heads; head += plan.heads) {
    run_head(b, start, chunk, head_lane, head);
  }
}

}  // namespace pagedecode::cuda
