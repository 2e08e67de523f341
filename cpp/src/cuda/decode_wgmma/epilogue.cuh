// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The end of a work: sums of the four warps' keys join, and O^T is turned through shared memory, so
// that rows are written in one piece: finished, or as the state of a split, which may be the last
// one that a merge waited for.
#pragma once

#include "cuda/decode_wgmma/mainloop.cuh"
#include "cuda/merge/merge.cuh"

namespace pagedecode::cuda {

template <class Traits>
__device__ __forceinline__ void write_wgmma_state(const DecodeProblem& p, const Plan& plan,
                                                  const Work& w, WgmmaMainloop<Traits>& mainloop,
                                                  WgmmaStorage<Traits>& shared) {
  using Softmax = WgmmaSoftmax<Traits>;
  constexpr int kD = Traits::kHeadDim;
  static_assert(sizeof(shared.q) + sizeof(shared.p) >= Traits::kRows * kD * 4);
  const SequenceView s = view_of(w);
  const int thread = thread_index();
  const int lane = thread % 32;
  const int rows = min(plan.rows(), w.m * p.group - w.row0);
  float* const slot =
      plan.partials +
      (w.splits == 1 ? 0 : slot_of(p, plan, w.origin, w.head, w.split) * plan.slot_floats);

  sync_consumers();  // no one reads Q or P any more
  // (N, D), in their place; columns are permuted so that the stores of a warp, of rows two apart,
  // meet different banks.
  auto* values = reinterpret_cast<float*>(shared.q);
  const auto place = [](int row, int column) { return row * kD + (column ^ (row / 2 % 4 * 8)); };
#pragma unroll
  for (int i = 0; i < Softmax::kOwn; ++i) {
    float sum = mainloop.softmax.sum[i];
#pragma unroll
    for (int d = 4; d < 32; d *= 2) sum += __shfl_xor_sync(~0u, sum, d);
    const int row = Softmax::row_of(i);
    if (lane < 4) {
      shared.by_warp[row][thread / 32] = sum;
      const float minus_ref = mainloop.softmax.minus_ref[i];
      shared.ref[row] = minus_ref == Softmax::kFresh ? -INFINITY : -minus_ref;
    }
#pragma unroll
    for (int z = 0; z < 2; ++z) {
      const int e = 2 * z + i % 2;
#pragma unroll
      for (int h = 0; h < Traits::kBlocks; ++h) {
        values[place(row, 64 * h + WgmmaMainloop<Traits>::element_of(e))] =
            mainloop.o[h][i / 2 * 4 + e];
      }
    }
  }
  sync_consumers();
  if (thread < rows) {
    const float4 sums = *reinterpret_cast<const float4*>(shared.by_warp[thread]);
    const SoftmaxState state{shared.ref[thread], (sums.x + sums.y) + (sums.z + sums.w)};
    float factor = 1.0f;
    if (w.splits == 1) {
      const int f = w.row0 + thread;
      const int i = plan.row_of(f);
      const int q_head = w.head * p.group + f - i * p.group;
      const RowResult result = finish(state, sink_of(p, q_head), p.lse_base2);
      factor = result.out_scale * p.v_scale[w.head];
      store_lse(p, s, i, q_head, result.lse);
    } else {
      reinterpret_cast<SoftmaxState*>(slot)[thread] = state;
    }
    shared.ref[thread] = factor;
  }
  sync_consumers();
#pragma unroll 2
  for (int task = thread; task < rows * (kD / 4); task += kWgmmaConsumers) {
    const int row = task / (kD / 4);
    const int column = task % (kD / 4) * 4;
    const float4 x = *reinterpret_cast<const float4*>(values + place(row, column));
    const float factor = shared.ref[row];
    const float4 y{x.x * factor, x.y * factor, x.z * factor, x.w * factor};
    if (w.splits > 1) {
      *reinterpret_cast<float4*>(slot + 2 * plan.rows() + row * kD + column) = y;
    } else {
      const int f = w.row0 + row;
      const int i = plan.row_of(f);
      store_out(p, s, i, w.head * p.group + f - i * p.group, column, y);
    }
  }
  sync_consumers();  // Q's place is free again
  if (w.splits > 1) {
    // Loads in flight, where 3 blocks an SM leave 128 registers.
    constexpr int kTasks = Traits::kVariant.blocks_per_sm > 2 ? 2 : 4;
    merge_splits<kD, kWgmmaConsumers, kTasks>(p, plan, w, &shared.last, [] { sync_consumers(); });
  }
}

}  // namespace pagedecode::cuda
