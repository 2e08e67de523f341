// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Folding the states of an item's rows, in the same launch: of the teams of a block (in shared
// memory, some columns at a time), of splits (in slots of the workspace). One loop does both, so
// that the second finds its code fetched: a cold instruction costs about 9 ns, and a small problem
// spends more on its ends than on its keys.
//
// Each block that wrote a split arrives at the item's counter, and the last one folds all splits in
// split order and puts the counter back to 0.
#pragma once

#include "cuda/merge/sink.cuh"
#include "cuda/thread.cuh"

namespace pagedecode::cuda {

// States to fold: `count` of them, the first at (states, values), the others evenly from `next_*`
// on, `*_apart` floats from each other. A state is (ref, sum) [rows], values are [rows][columns].
struct FoldSource {
  const float* states;
  const float* values;
  const float* next_states;
  const float* next_values;
  std::int64_t states_apart;
  std::int64_t values_apart;
  int count;
};

// Where the result goes.
struct FoldTarget {
  float* slot;       // null: `out` and `lse`
  int first_column;  // of the columns at hand
  int columns_log2;  // how many they are
};

// By the block's `kThreads` consuming threads. Values of `target.slot` may be those of the first
// source; its states are left to fold_states_of, after a barrier, since all columns read them here.
template <int kHeadDim, int kThreads>
__device__ __forceinline__ void fold_values_of(const DecodeProblem& p, const Plan& plan,
                                               const Work& w, int rows, const FoldSource& from,
                                               const FoldTarget& target) {
  // Loads in flight: a thread takes kTasks groups of four columns at a time, kBatch states of each.
  constexpr int kTasks = 2;
  constexpr int kBatch = 4;
  const SequenceView s = view_of(w);
  const int shift = target.columns_log2 - 2;
  const int tasks = rows << shift;
#pragma unroll 1
  for (int at0 = thread_index(); at0 < tasks; at0 += kTasks * kThreads) {
    SoftmaxState state[kTasks];
    float4 acc[kTasks];
#pragma unroll
    for (int t = 0; t < kTasks; ++t) {
      state[t] = {-INFINITY, 0.0f};
      acc[t] = {0.0f, 0.0f, 0.0f, 0.0f};
    }
#pragma unroll 1
    for (int i0 = 0; i0 < from.count; i0 += kBatch) {
      float2 right[kBatch][kTasks];
      float4 x[kBatch][kTasks];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const bool first = i0 + i == 0;
        const float* states =
            first ? from.states : from.next_states + (i0 + i - 1) * from.states_apart;
        const float* values =
            first ? from.values : from.next_values + (i0 + i - 1) * from.values_apart;
#pragma unroll
        for (int t = 0; t < kTasks; ++t) {
          const int at = at0 + t * kThreads;
          right[i][t] = {-INFINITY, 0.0f};
          x[i][t] = {0.0f, 0.0f, 0.0f, 0.0f};
          if (i0 + i < from.count && at < tasks) {
            right[i][t] = reinterpret_cast<const float2*>(states)[at >> shift];
            x[i][t] = reinterpret_cast<const float4*>(values)[at];
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (i0 + i >= from.count) break;
#pragma unroll
        for (int t = 0; t < kTasks; ++t) {
          fold_values(acc[t], fold(state[t], {right[i][t].x, right[i][t].y}), x[i][t]);
        }
      }
    }
#pragma unroll
    for (int t = 0; t < kTasks; ++t) {
      const int at = at0 + t * kThreads;
      if (at >= tasks) break;
      const int row = at >> shift;
      const int column = target.first_column + (at - (row << shift)) * 4;
      if (target.slot) {
        *reinterpret_cast<float4*>(target.slot + 2 * plan.rows() + row * kHeadDim + column) =
            acc[t];
        continue;
      }
      const int f = w.row0 + row;
      const int i = plan.row_of(f);
      const int q_head = w.head * p.group + f - i * p.group;
      const RowResult r = finish(state[t], sink_of(p, q_head), p.lse_base2);
      const float scale = r.out_scale * p.v_scale[w.head];
      if (column < p.head_dim) {
        store_out(p, s, i, q_head, column, {acc[t].x * scale, acc[t].y * scale, acc[t].z * scale,
                                            acc[t].w * scale});
      }
      if (column == 0) store_lse(p, s, i, q_head, r.lse);
    }
  }
}

template <int kThreads>
__device__ __forceinline__ void fold_states_of(int rows, const FoldSource& from, float* slot) {
#pragma unroll 1
  for (int row = thread_index(); row < rows; row += kThreads) {
    SoftmaxState state{-INFINITY, 0.0f};
#pragma unroll 1
    for (int i = 0; i < from.count; ++i) {
      const float* states = i == 0 ? from.states : from.next_states + (i - 1) * from.states_apart;
      const float2 right = reinterpret_cast<const float2*>(states)[row];
      fold(state, {right.x, right.y});
    }
    reinterpret_cast<SoftmaxState*>(slot)[row] = state;
  }
}

// Whether this block is the last of `count` to arrive; what its threads wrote before is visible to
// the last. Every thread that `sync` joins calls it.
template <class Sync>
__device__ __forceinline__ bool arrive_last(std::uint32_t* counter, int count, bool* shared,
                                            Sync&& sync) {
  sync();
  if (thread_index() == 0) {
    // The barrier before and the fence make the block's writes visible to who sees the count; the
    // fence after makes the others' visible to this block.
    __threadfence();
    const bool last = atomicAdd(counter, 1u) + 1 == static_cast<std::uint32_t>(count);
    if (last) *counter = 0;
    __threadfence();
    *shared = last;
  }
  sync();
  return *shared;
}

// Arrivals at an item's counters: splits in groups, then groups. Many splits fold in two levels,
// since one block reading all of them would take longer than the attention itself (33 splits of 32
// rows are 0.5 MB). Splits by the caller's rule fold in one, whose order no partition changes.
struct MergeTree {
  int fan;     // splits of a group
  int groups;  // 1: one level

  PD_HOST_DEVICE MergeTree(const Plan& plan, int splits) : fan(splits), groups(1) {
    if (plan.partition != Partition::kBalanced || splits <= 8) return;
    fan = 4;
    while (fan * fan < splits) ++fan;
    groups = (splits + fan - 1) / fan;
  }
  PD_HOST_DEVICE int size(int group, int splits) const {
    return group + 1 < groups ? fan : splits - group * fan;
  }
};

// Splits `first`, `first` + `step`, ... of an item.
__device__ __forceinline__ FoldSource split_source(const DecodeProblem& p, const Plan& plan,
                                                   const Work& w, int first, int count, int step) {
  const std::int64_t slot0 = slot_of(p, plan, w.origin, w.head, first);
  // Slots past that of split 0 lie evenly.
  const std::int64_t slot1 = slot_of(p, plan, w.origin, w.head, first + step);
  const std::int64_t slot2 = slot_of(p, plan, w.origin, w.head, first + 2 * step);
  FoldSource s;
  s.states = plan.partials + slot0 * plan.slot_floats;
  s.values = s.states + 2 * plan.rows();
  s.next_states = plan.partials + slot1 * plan.slot_floats;
  s.next_values = s.next_states + 2 * plan.rows();
  s.states_apart = s.values_apart = (slot2 - slot1) * plan.slot_floats;
  s.count = count;
  return s;
}

// The next merge that this block is to do after it wrote the state of a split; `level` counts from
// 0. False: none.
template <class Sync>
__device__ __forceinline__ bool next_merge(const DecodeProblem& p, const Plan& plan, const Work& w,
                                           int level, bool* shared, FoldSource& from,
                                           bool& final, Sync&& sync) {
  if (plan.partition == Partition::kWholeItems) {
    // The running fold in slot 0, this split in slot 1.
    if (level > 0 || w.split == 0) return false;
    from = split_source(p, plan, w, 0, 2, 1);
    final = w.split == w.splits - 1;
    sync();
    return true;
  }
  const MergeTree tree(plan, w.splits);
  const bool top = level == 1 || tree.groups == 1;
  if (level > (tree.groups > 1)) return false;
  const int group = w.split / tree.fan;
  // A group's counter is that of its first block, which is split 0 of one item at most, and a later
  // split of one.
  const std::int32_t block = w.origin + group * tree.fan * plan.heads;
  std::uint32_t* counter = top ? plan.counters + counter_of(p, plan, w.origin, w.head)
                               : plan.counters + kMaxBlocks + 2 * block + (group == 0);
  const bool groups = top && tree.groups > 1;
  const int first = groups ? 0 : group * tree.fan;
  const int count = groups ? tree.groups : tree.size(group, w.splits);
  if (!arrive_last(counter, count, shared, sync)) return false;
  from = split_source(p, plan, w, first, count, groups ? tree.fan : 1);
  final = top;
  return true;
}

}  // namespace pagedecode::cuda
