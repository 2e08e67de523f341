// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The end of a work: the teams of a block, which saw different keys, fold their states in team
// order through shared memory, a few columns at a time; the result is final, a partial state of a
// split, or folded into the block's running state (Partition::kWholeItems).
#pragma once

#include "cuda/decode/mainloop.cuh"
#include "cuda/decode/pipeline.cuh"
#include "cuda/merge/merge.cuh"

namespace pagedecode::cuda {

// Shared memory of the exchange, in Q's place.
struct Exchange {
  SoftmaxState* states;  // [kWarps][R]
  float* values;         // [kWarps][R][kExchangeColumns]

  __device__ explicit Exchange(std::uint8_t* at)
      : states(reinterpret_cast<SoftmaxState*>(at)),
        values(reinterpret_cast<float*>(at + kWarps * kWarpRows * 8)) {}
};

template <class Traits>
__device__ inline void write_state(const DecodeProblem& p, const Plan& plan, const Work& w,
                                   int head, Mainloop<Traits>& mainloop, std::uint8_t* smem) {
  constexpr int kR = kWarpRows;
  constexpr int kColumns = kExchangeColumns;
  const Exchange shared(smem);
  const SequenceView s = view_of(w);
  const int thread = thread_index();
  const int warp = thread / 32;
  const bool running = plan.partition == Partition::kWholeItems && w.splits > 1;
  const bool final = w.splits == 1 || (running && w.split == w.splits - 1);
  const int teams = kWarps >> plan.team_log2;
  const std::int64_t slot_index = w.splits == 1 ? 0 : slot_of(p, plan, w.origin, head, w.split);
  const Slot slot{plan.partials + slot_index * plan.slot_floats, plan.rows(), Traits::kHeadDim};

  mainloop.softmax.reduce();
  BlockState<Traits>::sync_consumers();  // no one reads Q any more
  if (thread % 4 == 0) {
#pragma unroll
    for (int r = 0; r < Mainloop<Traits>::kRows; ++r) {
      shared.states[warp * kR + fragment_row(r)] = {mainloop.softmax.ref[r],
                                                    mainloop.softmax.sum[r]};
    }
  }
  const int rows = min(plan.rows(), w.m * p.group - w.row0);
  const int tasks = rows * (kColumns / 4);

  // The row's state over all teams, and over the splits before if they are folded as they come.
  auto state_of = [&](int row, auto&& each_team) {
    SoftmaxState state{-INFINITY, 0.0f};
#pragma unroll 1
    for (int team = 0; team < teams; ++team) {
      const int at = ((team << plan.team_log2) + row / kR) * kR + row % kR;
      each_team(at, fold(state, shared.states[at]));
    }
    return state;
  };

#pragma unroll 1
  for (int first = 0; first < Traits::kHeadDim; first += kColumns) {
#pragma unroll
    for (int n = 0; n < Traits::kHeadDim / 8; ++n) {
      if (n * 8 / kColumns * kColumns != first) continue;
#pragma unroll
      for (int r = 0; r < Mainloop<Traits>::kRows; ++r) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          shared.values[(warp * kR + fragment_row(r)) * kColumns + output_column<Traits>(e, n) -
                        first] = mainloop.rO(cute::make_coord(e, r), 0, n);
        }
      }
    }
    BlockState<Traits>::sync_consumers();
#pragma unroll 1
    for (int task = thread; task < tasks; task += kWarps * 32) {
      const int row = task / (kColumns / 4);
      const int within = task % (kColumns / 4) * 4;
      const int column = first + within;
      float4 acc{0.0f, 0.0f, 0.0f, 0.0f};
      SoftmaxState state = state_of(row, [&](int at, FoldWeights weights) {
        fold_values(acc, weights,
                    *reinterpret_cast<const float4*>(shared.values + at * kColumns + within));
      });
      if (running && w.split > 0) {
        SoftmaxState before = *slot.state(row);
        float4 sum = *slot.values(row, column);
        fold_values(sum, fold(before, state), acc);
        state = before;
        acc = sum;
      }
      if (!final) {
        *slot.values(row, column) = acc;
      } else if (column < p.head_dim) {
        const int f = w.row0 + row;
        const int i = plan.row_of(f);
        const int q_head = head * p.group + f - i * p.group;
        const float scale = finish(state, sink_of(p, q_head), p.lse_base2).out_scale *
                            p.v_scale[head];
        store_out(p, s, i, q_head, column,
                  {acc.x * scale, acc.y * scale, acc.z * scale, acc.w * scale});
      }
    }
    BlockState<Traits>::sync_consumers();
  }
  // States last: a running state is read by every column above.
#pragma unroll 1
  for (int row = thread; row < rows; row += kWarps * 32) {
    SoftmaxState state = state_of(row, [](int, FoldWeights) {});
    if (running && w.split > 0) {
      SoftmaxState before = *slot.state(row);
      fold(before, state);
      state = before;
    }
    if (!final) {
      *slot.state(row) = state;
    } else {
      const int f = w.row0 + row;
      const int i = plan.row_of(f);
      const int q_head = head * p.group + f - i * p.group;
      store_lse(p, s, i, q_head,
                finish(state, sink_of(p, q_head), p.lse_base2).lse);
    }
  }
}

}  // namespace pagedecode::cuda
