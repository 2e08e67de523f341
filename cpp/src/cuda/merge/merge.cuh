// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The merge of an item's splits, in the same launch: each block that wrote a split arrives at the
// item's counter, and the last one folds all splits in split order and puts the counter back to 0.
#pragma once

#include "cuda/merge/sink.cuh"

namespace pagedecode::cuda {

// Whether this block is the last of `splits` to arrive; its partial state is written before, by
// any of its threads. Every thread of the block calls it. Afterwards the others' states can be read.
__device__ inline bool arrive_last(std::uint32_t* counter, std::int32_t splits, bool* shared) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    const bool last = atomicAdd(counter, 1u) + 1 == static_cast<std::uint32_t>(splits);
    if (last) *counter = 0;
    __threadfence();
    *shared = last;
  }
  __syncthreads();
  return *shared;
}

// Folds the splits of `w`'s item and writes its rows.
template <int kHeadDim>
__device__ inline void merge_splits(const DecodeProblem& p, const Plan& plan, const Work& w,
                                    int head) {
  const SequenceView s = view_of(w);
  const int rows = static_cast<int>(min64(plan.rows, s.m * p.group - w.row0));
  constexpr int kColumns = kHeadDim / 4;
  for (int at = threadIdx.x; at < rows * kColumns; at += blockDim.x) {
    const int row = at / kColumns;
    const int column = at % kColumns * 4;
    SoftmaxState state{-INFINITY, 0.0f};
    float4 acc{0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 4
    for (int i = 0; i < w.splits; ++i) {
      const std::int64_t slot = slot_of(p, plan, w.origin, head, i);
      const Slot from{plan.partials + slot * plan.slot_floats, plan.rows, kHeadDim};
      const float2 right = __ldcg(reinterpret_cast<const float2*>(from.state(row)));
      const float4 x = __ldcg(from.values(row, column));
      fold_values(acc, fold(state, {right.x, right.y}), x);
    }
    const int f = w.row0 + row;
    const int q_head = head * p.group + f % p.group;
    const RowResult r = finish(state, sink_of(p, q_head), p.lse_base2);
    const float scale = r.out_scale * p.v_scale[head];
    if (column < p.head_dim) {
      store_out(p, s, f / p.group, q_head, column,
                {acc.x * scale, acc.y * scale, acc.z * scale, acc.w * scale});
    }
    if (column == 0) store_lse(p, s, f / p.group, q_head, r.lse);
  }
}

}  // namespace pagedecode::cuda
