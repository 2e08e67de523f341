// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The merge of an item's splits, in the same launch: each block that wrote a split arrives at the
// item's counter, and the last one folds all splits in split order and puts the counter back to 0.
// (Few items with many splits have a faster way: decode_wgmma/gather.cuh.)
#pragma once

#include "cuda/merge/sink.cuh"
#include "cuda/thread.cuh"

namespace pagedecode::cuda {

// Whether this block is the last of `count` to arrive; what its threads wrote before is visible to
// the last. Every thread that `any` joins calls it: a barrier that tells whether any says yes.
template <class Any>
__device__ __forceinline__ bool arrive_last(std::uint32_t* counter, int count, Any&& any) {
  test_delay();
  any(false);
  bool last = false;
  if (thread_index() == 0) {
    test_delay();
    // After the barrier before, the release makes the block's writes visible to who sees the count;
    // the acquire makes the others' visible to this block. (__threadfence() would be sequentially
    // consistent, which is a slower fence.)
    std::uint32_t before;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(counter)
                 : "memory");
    last = before + 1 == static_cast<std::uint32_t>(count);
    if (last) *counter = 0;
  }
  return any(last);
}

// Folds `count` splits of an item, every `step`-th from `first` on, in order: to its rows if
// `final`, else to the slot of `first`.
template <int kHeadDim, int kThreads, class Sync>
__device__ __forceinline__ void fold_slots(const DecodeProblem& p, const Plan& plan, const Work& w,
                                           int first, int count, int step, bool final,
                                           Sync&& sync) {
  // Loads in flight: a merge waits for L2, and one block has few threads. A thread takes kTasks
  // groups of four columns at a time, kBatch splits of each.
  constexpr int kTasks = 4;
  constexpr int kBatch = 4;
  constexpr int kColumns = kHeadDim / 4;
  const SequenceView s = view_of(w);
  const int rows = min(plan.rows(), w.m * p.group - w.row0);
  const std::int64_t floats = plan.slot_floats;
  const ItemSlots slots(p, plan, w.origin, w.head);
  float* const slot0 = plan.partials + slots[first] * floats;
  // Slots past that of split 0 lie evenly.
  const float* const slot1 = plan.partials + slots[first + step] * floats;
  const std::int64_t apart = step * slots.apart * floats;
  const int tasks = rows * kColumns;
  const int values_at = 2 * plan.rows();
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
    for (int i0 = 0; i0 < count; i0 += kBatch) {
      float2 right[kBatch][kTasks];
      float4 x[kBatch][kTasks];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const float* from = i0 + i == 0 ? slot0 : slot1 + (i0 + i - 1) * apart;
#pragma unroll
        for (int t = 0; t < kTasks; ++t) {
          const int at = at0 + t * kThreads;
          right[i][t] = {-INFINITY, 0.0f};
          x[i][t] = {0.0f, 0.0f, 0.0f, 0.0f};
          if (i0 + i < count && at < tasks) {
            right[i][t] = __ldcg(reinterpret_cast<const float2*>(from) + at / kColumns);
            x[i][t] = __ldcg(reinterpret_cast<const float4*>(from + values_at) + at);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (i0 + i >= count) break;
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
      const int row = at / kColumns;
      const int column = at % kColumns * 4;
      if (!final) {
        reinterpret_cast<float4*>(slot0 + values_at)[at] = acc[t];
        continue;
      }
      const int f = w.row0 + row;
      const int i = plan.row_of(f);
      const int q_head = w.head * p.group + f - i * p.group;
      const RowResult r = finish(state[t], sink_of(p, q_head), p.lse_base2);
      const float scale = r.out_scale * p.v_scale[w.head];
      if (column < p.head_dim) {
        store_out(p, s, i, q_head, column,
                  {acc[t].x * scale, acc[t].y * scale, acc[t].z * scale, acc[t].w * scale});
      }
      if (column == 0) store_lse(p, s, i, q_head, r.lse);
    }
  }
  if (final) return;
  sync();  // the first slot's states have been read
  for (int row = thread_index(); row < rows; row += kThreads) {
    SoftmaxState state{-INFINITY, 0.0f};
#pragma unroll 4
    for (int i = 0; i < count; ++i) {
      const float* from = i == 0 ? slot0 : slot1 + (i - 1) * apart;
      const float2 right = __ldcg(reinterpret_cast<const float2*>(from) + row);
      fold(state, {right.x, right.y});
    }
    reinterpret_cast<SoftmaxState*>(slot0)[row] = state;
  }
}

// Arrivals at an item's counters: splits in groups, then groups. Many splits fold in two levels,
// since one block reading all of them would take longer than the attention itself (33 splits of 32
// rows are 0.5 MB). Splits by the caller's rule fold in one, whose order no partition changes.
struct MergeTree {
  int fan;     // splits of a group
  int groups;  // 1: one level

  PD_HOST_DEVICE MergeTree(const Plan& plan, int splits) : fan(splits), groups(1) {
    if (plan.partition != Partition::kBalanced || splits <= plan.one_level_splits) return;
    fan = 4;
    while (fan * fan < splits) ++fan;
    groups = (splits + fan - 1) / fan;
  }
  PD_HOST_DEVICE int size(int group, int splits) const {
    return group + 1 < groups ? fan : splits - group * fan;
  }
};

// After a block has written its split's partial state: walks the levels of the merge that this
// block is the last one for, with fold(first, count, step, final): slots of splits `first`, `first
// + step`, .. fold to the item's rows if `final`, else to the slot of `first`. Whether the last
// fold was final. `any` is the barrier of the threads that wrote and fold, as of arrive_last().
template <class Any, class Fold>
__device__ __forceinline__ bool merge_levels(const DecodeProblem& p, const Plan& plan,
                                             const Work& w, Any&& any, Fold&& fold) {
  // kWholeItems: the running fold lies in slot 0, this split in slot 1.
  const bool whole = plan.partition == Partition::kWholeItems;
  if (whole && w.split == 0) return false;
  const MergeTree tree(plan, w.splits);
  const int group = w.split / tree.fan;
  // Of the group's first block, which is split 0 of one item at most, and a later split of one.
  const std::int32_t block = w.origin + group * tree.fan * plan.heads;
  std::uint32_t* counter = plan.counters + kMaxBlocks + 2 * block + (group == 0);
  int first = group * tree.fan, count = tree.size(group, w.splits), step = 1;
  if (whole) first = 0, count = 2;
  bool final = false;
#pragma unroll 1
  for (int level = tree.groups == 1; level < 2; ++level) {
    final = level == 1;
    if (whole) {
      final = w.split == w.splits - 1;
      any(false);
    } else {
      if (level == 1) {
        counter = plan.counters + counter_of(p, plan, w.origin, w.head);
        if (tree.groups > 1) first = 0, count = tree.groups, step = tree.fan;
      }
      if (!arrive_last(counter, count, any)) return false;
    }
    fold(first, count, step, final);
  }
  return final;
}

// The same for slots of rows of columns.
template <int kHeadDim, int kThreads, class Any>
__device__ __forceinline__ void merge_splits(const DecodeProblem& p, const Plan& plan,
                                             const Work& w, Any&& any) {
  merge_levels(p, plan, w, any, [&](int first, int count, int step, bool final) {
    fold_slots<kHeadDim, kThreads>(p, plan, w, first, count, step, final, [&] { any(false); });
  });
}

}  // namespace pagedecode::cuda
