// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The end of a work: the teams of a block, which saw different keys, bring their accumulators to
// one reference and add them in team order through shared memory, some columns at a time. The
// result is final, or the state of a split, which may be the last one that a merge waited for.
#pragma once

#include "cuda/decode/mainloop.cuh"
#include "cuda/decode/pipeline.cuh"
#include "cuda/merge/merge.cuh"

namespace pagedecode::cuda {

// Shared memory of the exchange, in Q's place; rows of a team are adjacent.
struct Exchange {
  SoftmaxState* states;  // [kWarps * R]
  float* factors;        // [rows]: of a row's sums, on their way out
  float* values;         // [kWarps * R][columns]

  __device__ explicit Exchange(std::uint8_t* at)
      : states(reinterpret_cast<SoftmaxState*>(at)),
        factors(reinterpret_cast<float*>(states + kWarps * kWarpRows)),
        values(factors + kWarps * kWarpRows) {}
};

template <class Traits>
__device__ __forceinline__ void write_state(const BlockState<Traits>& b, const Work& w,
                                            Mainloop<Traits>& mainloop) {
  constexpr int kThreads = kWarps * 32;
  const DecodeProblem& p = b.p;
  const Plan& plan = b.plan;
  auto sync = [] { BlockState<Traits>::sync_consumers(); };
  const int thread = thread_index();
  const int warp = thread / 32;
  const int teams = kWarps >> plan.team_log2;
  const int rows = min(plan.rows(), w.m * p.group - w.row0);
  const SequenceView s = view_of(w);
  const Exchange shared(b.q());

  mainloop.softmax.reduce();
  sync();  // no one reads Q any more
  if (thread % 4 == 0) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      shared.states[warp * kWarpRows + fragment_row(r)] = {mainloop.softmax.ref[r],
                                                           mainloop.softmax.sum[r]};
    }
  }
  sync();
  // The reference of a row over all teams.
  auto reference = [&](int row) {
    float ref = -INFINITY;
#pragma unroll 1
    for (int team = 0; team < teams; ++team) {
      ref = fmaxf(ref, shared.states[(team << plan.rows_log2) + row].ref);
    }
    return ref;
  };
  const int row_of_team = (warp & (plan.team_warps() - 1)) * kWarpRows;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float weight =
        weight_of(mainloop.softmax.ref[r], reference(row_of_team + fragment_row(r)));
#pragma unroll
    for (int n = 0; n < Traits::kHeadDim / 8; ++n) {
      mainloop.rO(cute::make_coord(0, r), 0, n) *= weight;
      mainloop.rO(cute::make_coord(1, r), 0, n) *= weight;
    }
  }
  float* const slot =
      plan.partials +
      (w.splits == 1 ? 0 : ItemSlots(p, plan, w.origin, w.head)[w.split] * plan.slot_floats);
  if (thread < rows) {
    SoftmaxState state{reference(thread), 0.0f};
#pragma unroll 1
    for (int team = 0; team < teams; ++team) {
      const SoftmaxState x = shared.states[(team << plan.rows_log2) + thread];
      state.sum = fmaf(x.sum, weight_of(x.ref, state.ref), state.sum);
    }
    if (w.splits == 1) {
      const int f = w.row0 + thread;
      const int i = plan.row_of(f);
      const int q_head = w.head * p.group + f - i * p.group;
      const RowResult result = finish(state, sink_of(p, q_head), p.lse_base2);
      shared.factors[thread] = result.out_scale * p.v_scale[w.head];
      store_lse(p, s, i, q_head, result.lse);
    } else {
      shared.factors[thread] = 1.0f;
      reinterpret_cast<SoftmaxState*>(slot)[thread] = state;
    }
  }

  const int columns_log2 = plan.exchange_log2;
  const int tasks = rows << (columns_log2 - 2);
  const int team_values = 1 << (plan.rows_log2 + columns_log2);
#pragma unroll 1
  for (int first = 0; first < Traits::kHeadDim; first += 1 << columns_log2) {
#pragma unroll
    for (int n = 0; n < Traits::kHeadDim / 8; ++n) {
      if (n * 8 >> columns_log2 << columns_log2 != first) continue;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float* row = shared.values + ((warp * kWarpRows + fragment_row(r)) << columns_log2) - first;
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          row[output_column<Traits>(e, n)] = mainloop.rO(cute::make_coord(e, r), 0, n);
        }
      }
    }
    sync();
#pragma unroll 1
    for (int task = thread; task < tasks; task += kThreads) {
      const int row = task >> (columns_log2 - 2);
      const int column = first + (task * 4 & ((1 << columns_log2) - 1));
      float4 acc{0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
      for (int team = 0; team < kWarps; ++team) {
        if (team >= teams) break;
        const float4 x = reinterpret_cast<const float4*>(shared.values + team * team_values)[task];
        acc = {acc.x + x.x, acc.y + x.y, acc.z + x.z, acc.w + x.w};
      }
      const float factor = shared.factors[row];
      acc = {acc.x * factor, acc.y * factor, acc.z * factor, acc.w * factor};
      if (w.splits > 1) {
        *reinterpret_cast<float4*>(slot + 2 * plan.rows() + row * Traits::kHeadDim + column) = acc;
      } else if (column < p.head_dim) {
        const int f = w.row0 + row;
        const int i = plan.row_of(f);
        store_out(p, s, i, w.head * p.group + f - i * p.group, column, acc);
      }
    }
    sync();
  }
  if (w.splits > 1) {
    merge_splits<Traits::kHeadDim, kThreads>(
        p, plan, w, [](bool yes) { return any_of<kConsumerBarrier, kWarps * 32>(yes); });
  }
}

}  // namespace pagedecode::cuda
