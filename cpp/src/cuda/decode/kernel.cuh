// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Paged decode attention on mma.sync, for any GPU from sm_80 on, in one launch of a fixed grid.
//   1. Each block finds its chunk of keys from the lengths (schedule/).
//   2. Its loading warp keeps a ring of stages full with cp.async, ahead over works (load.cuh).
//   3. Its four other warps consume them: teams of warps (one warp up to 16 rows) take keys of
//      their own, with an online softmax of their own, without barriers (mainloop.cuh,
//      softmax.cuh).
//   4. At a work's end the teams fold (epilogue.cuh); the last block of a split item folds its
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

// One step of one warp: kStepKeys keys from key from * kKeys of a stage on. `leave_k` is called
// when K and the header have been read, `wait_v` returns when the stage's V is there.
template <class Traits, class LeaveK, class WaitV>
__device__ __forceinline__ void consume(const BlockState<Traits>& b, const Work& w, int head,
                                        int row0, const typename Traits::Element* q, int key0,
                                        int edge, const int (&own)[2], int from, int stage,
                                        Mainloop<Traits>& mainloop, LeaveK&& leave_k,
                                        WaitV&& wait_v) {
  using Loop = Mainloop<Traits>;
  const DecodeProblem& p = b.p;
  const int first = from * Traits::kKeys;  // of the stage's keys
  std::uint8_t* k_tile = b.k_stage(stage) + first * Traits::kRowBytes;
  std::uint8_t* v_tile = b.v_stage(stage) + first * Traits::kRowBytes;
  const DType k_type = Traits::type_in_shared(p.k.dtype);
  const DType v_type = Traits::type_in_shared(p.v.dtype);
  auto rS = cute::make_tensor<float>(typename Loop::SLayout{});
  mainloop.scores(q, k_tile, k_type, rS);
  const std::uint32_t bad = b.headers()[stage].bad[first / 32] >> first % 32;
  leave_k();

  constexpr int kCols = Loop::kKeys / 4;
  float scale[2] = {mainloop.scale[0], mainloop.scale[1]};
  if (Traits::kOptions && (p.softcap > 0.0f || p.alibi_slopes)) {
    const float natural[2] = {scale[0] * kLn2, scale[1] * kLn2};
    scale[0] = scale[1] = 1.0f;
    apply_options<kCols>(p, b.plan, w, head, row0, key0, natural, [&](int r, int c) -> float& {
      return rS(cute::make_coord(c % 2, r), 0, c / 2);
    });
  }
  if (key0 + Loop::kKeys <= w.n - w.m && key0 >= edge && bad == 0) {
    mainloop.softmax.template step<false>(rS, mainloop.rO, scale, 0);
  } else {
    const std::uint32_t hidden = !Traits::kOptions || ranges_only(p)
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
    wait_v();
    if (w.m > 1 || p.window_left >= 0 || p.draft_mask.kind != MaskKind::kNone) {
      take_out_nonfinite(v_type, hidden, v_tile, rS, mainloop, [&] { b.sync_team(); });
    }
  }
  wait_v();
  mainloop.accumulate(v_tile, v_type, rS);
}

// What begins a work: its Q, and what each row sees at most.
template <class Traits>
__device__ __forceinline__ void begin_work(const BlockState<Traits>& b, const Work& w,
                                           int row_of_team, const typename Traits::Element* q,
                                           int (&own)[2], Mainloop<Traits>& mainloop) {
  const DecodeProblem& p = b.p;
  load_q<Traits>(p, b.plan, w, w.head, b.q(), b.row_scale());
  b.sync_consumers();
  mainloop.begin(q);
  const float scale = p.softmax_scale * p.k_scale[w.head] * kLog2e;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    mainloop.scale[r] =
        Traits::kBytes ? scale * b.row_scale()[row_of_team + fragment_row(r)] : scale;
    own[r] = w.n - w.m + b.plan.row_of(w.row0 + row_of_team + fragment_row(r));
  }
}

// A consuming warp.
template <class Traits>
__device__ __forceinline__ void consume_all(const BlockState<Traits>& b) {
  const Plan& plan = b.plan;
  const int warp = threadIdx.x / 32;
  const int team_begin = warp >> plan.team_log2 << plan.team_log2;
  const int team_end = team_begin + plan.team_warps();
  const int row_of_team = (warp - team_begin) * kWarpRows;
  const auto* q =
      reinterpret_cast<const typename Traits::Element*>(b.q()) + row_of_team * Traits::kHeadDim;
  constexpr int kTiles = Traits::kStepKeys / Traits::kKeys;
  RingPosition ring;
#pragma unroll 1
  while (true) {
    b.header(ring.stage).wait(ring.parity);
    const int at = b.headers()[ring.stage].work;
    if (at < 0) return;
    const Work& w = b.works()[at];
    // NOTE: Q and the accumulators live in this scope, so that they leave their registers to the
    // merge below; carried around the outer loop they would spill.
    Mainloop<Traits> mainloop;
    int own[2];
    begin_work(b, w, row_of_team, q, own, mainloop);
    const int edge = b.p.window_left < 0 ? 0 : window_edge<Traits::kOptions>(b.p, plan, w);
    const int begin = w.begin, end = w.end;
    bool last;
#pragma unroll 1
    do {
      const int stage = ring.stage;
      b.header(stage).wait(ring.parity);
      const int key = b.headers()[stage].key;
      last = b.headers()[stage].last;
      b.full_k(stage).wait(ring.parity);
      test_delay();
      bool holds_k = true;
      bool waited = false;
      auto leave_k = [&] {
        arrive_as_warp(b.empty_k(stage));
        holds_k = false;
      };
      auto wait_v = [&] {
        if (!waited) b.full_v(stage).wait(ring.parity);
        waited = true;
      };
#pragma unroll 1
      for (int from = team_begin; from < team_end; from += kTiles) {
        const int key0 = key + from * Traits::kKeys;
        if (key0 >= end || key0 + Traits::kStepKeys <= begin || begin >= end) continue;
        consume(
            b, w, w.head, w.row0 + row_of_team, q, key0, edge, own, from, stage, mainloop,
            [&] {
              if (from + kTiles == team_end) leave_k();
            },
            wait_v);
      }
      if (holds_k) leave_k();
      wait_v();
      arrive_as_warp(b.empty_v(stage));
      ring.advance(plan.stages);
    } while (!last);

    write_state(b, w, mainloop);
  }
}

template <class Traits>
__global__ void __launch_bounds__((kWarps + 1) * 32, Traits::kVariant.blocks_per_sm)
    decode_kernel(const __grid_constant__ DecodeProblem p, const __grid_constant__ Plan plan) {
  extern __shared__ __align__(1024) std::uint8_t smem[];
  const int head_lane = blockIdx.x % plan.heads;
  const int chunk = blockIdx.x / plan.heads;
  const BlockState<Traits> b{p, plan, smem};
  ChunkStart start;
  const bool alone = p.batch <= kWarpLocates;
  if (threadIdx.x == 0) b.init_barriers();
  __syncthreads();
  if (!alone)
    start = locate_chunk(p, plan, chunk, *reinterpret_cast<LocateStorage<BlockScope>*>(smem));
  if (threadIdx.x / 32 == kWarps) {
    if (alone)
      start = locate_chunk(p, plan, chunk, *reinterpret_cast<LocateStorage<WarpScope>*>(smem));
    Loader<Traits> loader(b);
#pragma unroll 1
    for (int head = head_lane; head < p.num_kv_heads; head += plan.heads) {
      loader.load_head(start, chunk, head_lane, head);
    }
    loader.finish();
  } else {
    consume_all(b);
  }
}

}  // namespace pagedecode::cuda
