// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The end of a work with query rows first. Partial states lie in the layout of accumulators, as
// fold.cuh has them, but a row is one quad's alone, so that nothing but a second team's state goes
// through shared memory.
//
//   slot: SoftmaxState [rows], float4 [D / 8][threads of the rows]
#pragma once

#include "cuda/decode_wgmma/fold.cuh"
#include "cuda/decode_wgmma/gather.cuh"
#include "cuda/decode_wgmma/rows_mainloop.cuh"

namespace pagedecode::cuda {

template <class Traits>
struct RowsFold : PartialStates {
  static constexpr int kVectors = Traits::kHeadDim / 8;
  static constexpr int kBatch = 8;                    // vectors in flight
  static constexpr int kThreads = 2 * Traits::kRows;  // that hold the rows
  using Softmax = RowsSoftmax<Traits>;
  using Accumulators = float[4 * kVectors];

  using PartialStates::PartialStates;

  // A thread's vectors of a split.
  __device__ __forceinline__ float4* vectors(std::int32_t split) const {
    return reinterpret_cast<float4*>(slot(split) + 2 * Traits::kRows) + thread_index();
  }

  __device__ __forceinline__ void store(std::int32_t split, const SoftmaxState (&state)[2],
                                        const Accumulators& o) const {
    if (lane_index() % 4 == 0) {
      auto* to = reinterpret_cast<SoftmaxState*>(slot(split));
      to[Softmax::row_of(0)] = state[0];
      to[Softmax::row_of(1)] = state[1];
    }
    float4* const to = vectors(split);
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      to[j * kThreads] = float4{o[4 * j], o[4 * j + 1], o[4 * j + 2], o[4 * j + 3]};
    }
  }

  // state, o = the fold of `count` splits from `first` on, `step` apart, in order.
  __device__ __forceinline__ void load(std::int32_t first, std::int32_t count, std::int32_t step,
                                       SoftmaxState (&state)[2], Accumulators& o) const {
    const auto state_of = [&](std::int32_t i, int r) {
      return __ldcg(reinterpret_cast<const float2*>(slot(first + i * step)) + Softmax::row_of(r));
    };
    float ref[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};
#pragma unroll 4
    for (std::int32_t i = 0; i < count; ++i) {
#pragma unroll
      for (int r = 0; r < 2; ++r) ref[r] = fmaxf(ref[r], state_of(i, r).x);
    }
#pragma unroll
    for (int j = 0; j < 4 * kVectors; ++j) o[j] = 0.0f;
#pragma unroll 1
    for (std::int32_t i = 0; i < count; ++i) {
      float weight[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float2 y = state_of(i, r);
        weight[r] = weight_of(y.x, ref[r]);
        sum[r] = __fmaf_rn(y.y, weight[r], sum[r]);
      }
      const float4* const from = vectors(first + i * step);
#pragma unroll
      for (int j0 = 0; j0 < kVectors; j0 += kBatch) {
        float4 x[kBatch];
#pragma unroll
        for (int j = 0; j < kBatch; ++j) x[j] = __ldcg(from + (j0 + j) * kThreads);
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
          float* const to = o + 4 * (j0 + j);
          to[0] = __fmaf_rn(x[j].x, weight[0], to[0]);
          to[1] = __fmaf_rn(x[j].y, weight[0], to[1]);
          to[2] = __fmaf_rn(x[j].z, weight[1], to[2]);
          to[3] = __fmaf_rn(x[j].w, weight[1], to[3]);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) state[r] = {ref[r], sum[r]};
  }
};

// The second team's state, through the place of P; it is there after the next barrier.
template <class Traits>
__device__ __forceinline__ void give_to_first_team(const SoftmaxState (&state)[2],
                                                   const float (&o)[Traits::kHeadDim / 2],
                                                   WgmmaStorage<Traits>& shared) {
  const int thread = thread_index() - Traits::kTeam;
  if (thread < 0) return;
  if (thread % 4 == 0) {
    for (int r = 0; r < 2; ++r) shared.of_team[RowsSoftmax<Traits>::row_of(r)] = state[r];
  }
  auto* const to = reinterpret_cast<float4*>(shared.p) + thread;
#pragma unroll
  for (int j = 0; j < Traits::kHeadDim / 8; ++j) {
    to[j * Traits::kTeam] = float4{o[4 * j], o[4 * j + 1], o[4 * j + 2], o[4 * j + 3]};
  }
}

// Folds it behind the first team's.
template <class Traits>
__device__ __forceinline__ void take_from_second_team(SoftmaxState (&state)[2],
                                                      float (&o)[Traits::kHeadDim / 2],
                                                      const WgmmaStorage<Traits>& shared) {
  FoldWeights weights[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    weights[r] = fold(state[r], shared.of_team[RowsSoftmax<Traits>::row_of(r)]);
  }
  const auto* const from = reinterpret_cast<const float4*>(shared.p) + thread_index();
#pragma unroll
  for (int j = 0; j < Traits::kHeadDim / 8; ++j) {
    const float4 x = from[j * Traits::kTeam];
    o[4 * j] = fmaf(x.x, weights[0].right, o[4 * j] * weights[0].left);
    o[4 * j + 1] = fmaf(x.y, weights[0].right, o[4 * j + 1] * weights[0].left);
    o[4 * j + 2] = fmaf(x.z, weights[1].right, o[4 * j + 2] * weights[1].left);
    o[4 * j + 3] = fmaf(x.w, weights[1].right, o[4 * j + 3] * weights[1].left);
  }
}

// A split's state to its slot. The last block of the item has all of them back, folded; whether
// this is it. `holds`: this thread has a part of it.
template <class Traits>
__device__ __forceinline__ bool merge_rows_state(const DecodeProblem& p, const Plan& plan,
                                                 const Work& w, bool holds,
                                                 SoftmaxState (&state)[2],
                                                 float (&o)[Traits::kHeadDim / 2]) {
  RowsFold<Traits> fold(p, plan, w);
  if (holds) fold.store(w.split, state, o);
  return merge_levels(
      p, plan, w, [](bool yes) { return any_of_consumers<Traits>(yes); },
      [&](int first, int count, int step, bool is_final) {
        if (!holds) return;
        fold.load(first, count, step, state, o);
        if (!is_final) fold.store(first, state, o);
      });
}

template <class Traits>
__device__ __forceinline__ void write_wgmma_state(const DecodeProblem& p, const Plan& plan,
                                                  const Work& w, RowsMainloop<Traits>& mainloop,
                                                  WgmmaStorage<Traits>& shared) {
  using Softmax = RowsSoftmax<Traits>;
  SoftmaxState state[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float sum = mainloop.softmax.sum[r];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    const float minus_ref = mainloop.softmax.minus_ref[r];
    state[r] = {minus_ref == Softmax::kFresh ? -INFINITY : -minus_ref, sum};
  }
  const bool holds = Traits::kTeams == 1 || thread_index() < Traits::kTeam;
  if constexpr (Traits::kTeams > 1) give_to_first_team<Traits>(state, mainloop.o, shared);
  sync_consumers<Traits>();  // no one reads Q any more
  if constexpr (Traits::kTeams > 1) {
    if (holds) take_from_second_team<Traits>(state, mainloop.o, shared);
  }
  if (w.splits > 1) {
    if (gathers<Traits>(plan)) {
      if (holds) WgmmaGather<Traits>(p, plan, w).send(state, mainloop.o);
      return;
    }
    if constexpr (!Traits::kGathersOnly) {
      if (!merge_rows_state<Traits>(p, plan, w, holds, state, mainloop.o)) return;
    }
  }
  if (!holds) return;

  const SequenceView s = view_of(w);
  const int t = lane_index() % 4;
#pragma unroll 1
  for (int r = 0; r < 2; ++r) {
    const int f = w.row0 + Softmax::row_of(r);
    const int i = plan.row_of(f);
    const int q_head = w.head * p.group + f - i * p.group;
    float factor = 0.0f;
    if (i < w.m) {
      const RowResult result =
          finish(r == 0 ? state[0] : state[1], sink_of(p, q_head), p.lse_base2);
      factor = result.out_scale * p.v_scale[w.head];
      if (t == 0) store_lse(p, s, i, q_head, result.lse);
    }
    // Two threads swap, so that each has four columns together: of block j the even one, of j + 1
    // the odd one.
#pragma unroll
    for (int j = 0; j < Traits::kHeadDim / 8; j += 2) {
      const float* const x = mainloop.o + 4 * j;
      float own[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) own[e] = r == 0 ? x[e / 2 * 4 + e % 2] : x[e / 2 * 4 + 2 + e % 2];
      const bool odd = t % 2;
      const float a = __shfl_xor_sync(~0u, odd ? own[0] : own[2], 1);
      const float b = __shfl_xor_sync(~0u, odd ? own[1] : own[3], 1);
      const float4 y = odd ? float4{a, b, own[2], own[3]} : float4{own[0], own[1], a, b};
      if (i >= w.m) continue;
      store_out(p, s, i, q_head, 8 * (j + t % 2) + t / 2 * 4,
                {y.x * factor, y.y * factor, y.z * factor, y.w * factor});
    }
  }
}

}  // namespace pagedecode::cuda
