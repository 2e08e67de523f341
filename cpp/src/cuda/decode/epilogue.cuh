// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The end of a work: the teams of a block, which saw different keys, fold their states in team
// order through shared memory, a few columns at a time; the result is final, or the state of a
// split, which may be the last one that a merge waited for.
#pragma once

#include "cuda/decode/mainloop.cuh"
#include "cuda/decode/pipeline.cuh"
#include "cuda/merge/merge.cuh"

namespace pagedecode::cuda {

template <class Traits>
__device__ __forceinline__ void write_state(const BlockState<Traits>& b, const Work& w,
                                            Mainloop<Traits>& mainloop) {
  constexpr int kThreads = kWarps * 32;
  constexpr int kColumns = kExchangeColumns;
  constexpr int kChunks = Traits::kHeadDim / kColumns;
  const DecodeProblem& p = b.p;
  const Plan& plan = b.plan;
  auto sync = [] { BlockState<Traits>::sync_consumers(); };
  const int thread = thread_index();
  const int warp = thread / 32;
  const int rows = min(plan.rows(), w.m * p.group - w.row0);
  // In Q's place: states [kWarps][R], values [kWarps][R][kColumns]: rows of a team are adjacent.
  auto* states = reinterpret_cast<SoftmaxState*>(b.q());
  auto* values = reinterpret_cast<float*>(b.q() + kWarps * kWarpRows * 8);

  mainloop.softmax.reduce();
  sync();  // no one reads Q any more
  if (thread % 4 == 0) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      states[warp * kWarpRows + fragment_row(r)] = {mainloop.softmax.ref[r],
                                                    mainloop.softmax.sum[r]};
    }
  }
  FoldSource teams;
  teams.states = reinterpret_cast<const float*>(states);
  teams.values = values;
  teams.states_apart = 2 * plan.rows();
  teams.values_apart = plan.rows() * kColumns;
  teams.next_states = teams.states + teams.states_apart;
  teams.next_values = teams.values + teams.values_apart;
  teams.count = kWarps >> plan.team_log2;
  float* const own = w.splits == 1
                         ? nullptr
                         : plan.partials + slot_of(p, plan, w.origin, w.head, w.split) *
                                               plan.slot_floats;

#pragma unroll 1
  for (int phase = 0;; ++phase) {
    FoldSource from = teams;
    FoldTarget to{own, phase * kColumns, 5};
    static_assert(kColumns == 1 << 5);
    if (phase < kChunks) {
#pragma unroll
      for (int n = 0; n < Traits::kHeadDim / 8; ++n) {
        if (n * 8 / kColumns != phase) continue;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            values[(warp * kWarpRows + fragment_row(r)) * kColumns + output_column<Traits>(e, n) -
                   to.first_column] = mainloop.rO(cute::make_coord(e, r), 0, n);
          }
        }
      }
      sync();
    } else {
      if (phase == kChunks) {
        if (!own) break;
        fold_states_of<kThreads>(rows, teams, own);
      }
      bool final;
      if (!next_merge(p, plan, w, phase - kChunks, b.flag(), from, final, sync)) break;
      to.slot = final ? nullptr : const_cast<float*>(from.states);
      to.first_column = 0;
      to.columns_log2 = Traits::kHeadDim == 64 ? 6 : Traits::kHeadDim == 128 ? 7 : 8;
    }
    fold_values_of<Traits::kHeadDim, kThreads>(p, plan, w, rows, from, to);
    sync();
    if (phase >= kChunks && to.slot) fold_states_of<kThreads>(rows, from, to.slot);
  }
}

}  // namespace pagedecode::cuda
