// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The end of a work. Sums of the four warps' keys join. A split's state goes to its slot, and the
// last block of an item takes all of them back, folded (fold.cuh); or it is sent, and gathered at
// the end of the launch (gather.cuh). Finished rows are turned through shared memory, so that they
// are written in one piece.
#pragma once

#include "cuda/decode_wgmma/fold.cuh"
#include "cuda/decode_wgmma/gather.cuh"

namespace pagedecode::cuda {

// O of the first key group = the sum of all, where warpgroups share out the keys of a tile. The
// places of Q and P are free before and after.
template <class Traits>
__device__ __forceinline__ void add_key_groups(WgmmaMainloop<Traits>& mainloop,
                                               WgmmaStorage<Traits>& shared) {
  constexpr int kVectors = Traits::kRows / 8 * Traits::kOwnBlocks;
  static_assert(sizeof(shared.q) + sizeof(shared.p) >= kVectors * Traits::kOutThreads * 16);
  auto* const vectors = reinterpret_cast<float4*>(shared.q) + thread_index() % Traits::kOutThreads;
  const int group = thread_index() / Traits::kOutThreads;
#pragma unroll 1
  for (int from = 1; from < Traits::kKeyGroups; ++from) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      float* const o = mainloop.o[v % Traits::kOwnBlocks] + v / Traits::kOwnBlocks * 4;
      if (group == from) vectors[v * Traits::kOutThreads] = float4{o[0], o[1], o[2], o[3]};
    }
    sync_consumers<Traits>();
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      float* const o = mainloop.o[v % Traits::kOwnBlocks] + v / Traits::kOwnBlocks * 4;
      if (group > 0) continue;
      const float4 x = vectors[v * Traits::kOutThreads];
      o[0] += x.x, o[1] += x.y, o[2] += x.z, o[3] += x.w;
    }
    sync_consumers<Traits>();
  }
}

// A split's state to its slot. The last block of the item has all of them back, folded; whether
// this is it.
template <class Traits>
__device__ __forceinline__ bool merge_wgmma_state(const DecodeProblem& p, const Plan& plan,
                                                  const Work& w, WgmmaMainloop<Traits>& mainloop,
                                                  WgmmaStorage<Traits>& shared) {
  WgmmaFold<Traits> fold(p, plan, w);
  fold.store(w.split, mainloop.o, shared);
  return merge_levels(
      p, plan, w, [](bool yes) { return any_of_consumers<Traits>(yes); },
      [&](int first, int count, int step, bool is_final) {
        fold.load(first, count, step, shared, mainloop.o);
        if (!is_final) fold.store(first, mainloop.o, shared);
      });
}

template <class Traits>
__device__ __forceinline__ void write_wgmma_state(const DecodeProblem& p, const Plan& plan,
                                                  const Work& w, WgmmaMainloop<Traits>& mainloop,
                                                  WgmmaStorage<Traits>& shared) {
  using Softmax = WgmmaSoftmax<Traits>;
  constexpr int kD = Traits::kHeadDim;
  static_assert(sizeof(shared.q) + sizeof(shared.p) >= Traits::kRows * kD * 4);
  const int thread = thread_index();
  const int lane = thread % 32;

#pragma unroll
  for (int i = 0; i < Softmax::kOwn; ++i) {
    float sum = mainloop.softmax.sum[i];
#pragma unroll
    for (int d = 4; d < 32; d *= 2) sum += __shfl_xor_sync(~0u, sum, d);
    const int row = Softmax::row_of(i);
    if (lane < 4) shared.by_warp[row][thread / 32] = sum;
    if (thread < 4) {
      const float minus_ref = mainloop.softmax.minus_ref[i];
      shared.ref[row] = minus_ref == Softmax::kFresh ? -INFINITY : -minus_ref;
    }
  }
  sync_consumers<Traits>();  // no one reads Q or P any more, either
  if (thread < Traits::kRows) {
    float sum = 0.0f;
#pragma unroll
    for (int g = 0; g < Traits::kGroups; ++g) {
      const float4 sums = reinterpret_cast<const float4*>(shared.by_warp[thread])[g];
      sum += (sums.x + sums.y) + (sums.z + sums.w);
    }
    shared.sum[thread] = sum;
  }

  if constexpr (Traits::kKeyGroups > 1) add_key_groups<Traits>(mainloop, shared);

  if (w.splits > 1) {
    if (gathers<Traits>(plan)) {
      WgmmaGather<Traits>(p, plan, w).send(mainloop, shared);
      return;
    }
    if constexpr (!Traits::kGathersOnly) {
      if (!merge_wgmma_state<Traits>(p, plan, w, mainloop, shared)) return;
    }
  }

  const SequenceView s = view_of(w);
  const int rows = min(plan.rows(), w.m * p.group - w.row0);
  if (thread < rows) {
    const int f = w.row0 + thread;
    const int i = plan.row_of(f);
    const int q_head = w.head * p.group + f - i * p.group;
    const RowResult result =
        finish({shared.ref[thread], shared.sum[thread]}, sink_of(p, q_head), p.lse_base2);
    shared.sum[thread] = result.out_scale * p.v_scale[w.head];
    store_lse(p, s, i, q_head, result.lse);
  }
  // (N, D) in the place of Q and P; columns are permuted so that the stores of a warp, of rows two
  // apart, meet different banks.
  auto* values = reinterpret_cast<float*>(shared.q);
  const auto place = [](int row, int column) { return row * kD + (column ^ (row / 2 % 4 * 8)); };
  if (thread < Traits::kOutThreads) {
#pragma unroll
    for (int i = 0; i < Softmax::kOwn; ++i) {
#pragma unroll
      for (int z = 0; z < 2; ++z) {
        const int e = 2 * z + i % 2;
#pragma unroll
        for (int h = 0; h < Traits::kOwnBlocks; ++h) {
          values[place(Softmax::row_of(i),
                       64 * (mainloop.first_block + h) + WgmmaMainloop<Traits>::element_of(e))] =
              mainloop.o[h][i / 2 * 4 + e];
        }
      }
    }
  }
  sync_consumers<Traits>();
#pragma unroll 1
  for (int task = thread; task < rows * (kD / 4); task += Traits::kConsumers) {
    const int row = task / (kD / 4);
    const int column = task % (kD / 4) * 4;
    const float4 x = *reinterpret_cast<const float4*>(values + place(row, column));
    const float factor = shared.sum[row];
    const int f = w.row0 + row;
    const int i = plan.row_of(f);
    store_out(p, s, i, w.head * p.group + f - i * p.group, column,
              {x.x * factor, x.y * factor, x.z * factor, x.w * factor});
  }
  sync_consumers<Traits>();  // Q's place is free again
}

}  // namespace pagedecode::cuda
