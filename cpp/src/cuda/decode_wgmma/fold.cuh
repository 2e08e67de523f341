// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Partial states of a split item, in the layout of O^T's accumulators: a thread stores what it
// holds and loads what it stored, whichever block it is in, 16 bytes at a time and without an
// exchange.
//
//   slot: SoftmaxState [rows], float4 [rows / 8][kOwnBlocks][kOutThreads]
//
// A fold first finds the weight of each split's rows, in shared memory: references are integers, so
// that weights are powers of two, and one step gives the bits of many. Then it adds up the splits
// in order. The code runs once a call or two, so that it is short: cold instructions are what
// costs.
#pragma once

#include "cuda/decode_wgmma/mainloop.cuh"
#include "cuda/merge/merge.cuh"

namespace pagedecode::cuda {

// Places of an item's slots.
struct PartialStates {
  float* partials;
  std::int32_t slot_floats;
  ItemSlots slots;

  __device__ PartialStates(const DecodeProblem& p, const Plan& plan, const Work& w)
      : partials(plan.partials),
        slot_floats(static_cast<std::int32_t>(plan.slot_floats)),
        slots(p, plan, w.origin, w.head) {}

  __device__ __forceinline__ float* slot(std::int32_t split) const {
    return partials + static_cast<std::int64_t>(slots[split]) * slot_floats;
  }
};

template <class Traits>
struct WgmmaFold : PartialStates {
  static constexpr int kRows = Traits::kRows;
  static constexpr int kBlocks = Traits::kOwnBlocks;
  // Blocks of 8 rows at a time: at most 8 float4 of a split.
  static constexpr int kGroup = kRows / 8 * kBlocks <= 8 ? kRows / 8 : 8 / kBlocks;
  static constexpr int kVectors = kGroup * kBlocks;
  static constexpr int kRound = 32;  // splits whose weights are found at a time
  // Registers for loads in flight, beside those of o and 90 others.
  static constexpr int kSpare = Traits::kConsumerRegisters - kRows / 2 * kBlocks - 90;
  static constexpr int kFlight = kSpare >= 64 ? 16 : 8;  // float4
  static constexpr int kBatch = kVectors >= kFlight ? 1 : kFlight / kVectors;
  static_assert(kRound * kRows * sizeof(SoftmaxState) <=
                sizeof(WgmmaStorage<Traits>::q) + sizeof(WgmmaStorage<Traits>::p));

  using Accumulators = float[kBlocks][kRows / 2];

  using PartialStates::PartialStates;

  // The state of split `split`: o, and references and sums of the rows as they lie in `shared`.
  __device__ __forceinline__ void store(std::int32_t split, const Accumulators& o,
                                        const WgmmaStorage<Traits>& shared) const {
    float* const to = slot(split);
    const int thread = thread_index();
    if (thread < kRows) {
      reinterpret_cast<SoftmaxState*>(to)[thread] = {shared.ref[thread], shared.sum[thread]};
    }
    if (thread >= Traits::kOutThreads) return;
    float4* const vectors = reinterpret_cast<float4*>(to + 2 * kRows) + thread;
#pragma unroll
    for (int j = 0; j < kRows / 8; ++j) {
#pragma unroll
      for (int h = 0; h < kBlocks; ++h) {
        vectors[(j * kBlocks + h) * Traits::kOutThreads] =
            float4{o[h][4 * j], o[h][4 * j + 1], o[h][4 * j + 2], o[h][4 * j + 3]};
      }
    }
  }

  // o, shared.ref, shared.sum = the fold of `count` splits from `first` on, `step` apart. The
  // places of Q and P are free before; all of it is there after the barrier that it ends with.
  __device__ __forceinline__ void load(std::int32_t first, std::int32_t count, std::int32_t step,
                                       WgmmaStorage<Traits>& shared, Accumulators& o) const {
    constexpr int kAllLanes = Traits::kConsumers / kRows;
    constexpr int kLanes = kAllLanes < 32 ? kAllLanes : 32;  // of a row
    const int thread = thread_index();
    auto* table = reinterpret_cast<float2*>(shared.q);  // [kRound][kRows]: (weight, sum)
    // Of this thread's rows, of each split.
    const auto* weights = reinterpret_cast<const float4*>(table + thread % 4 * 2);
    float sum[kRows / 4];  // of this thread's rows
#pragma unroll
    for (int i = 0; i < kRows / 4; ++i) sum[i] = 0.0f;
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) {
#pragma unroll
      for (int h = 0; h < kBlocks; ++h) o[h][i] = 0.0f;
    }
    // Splits after the first of an item lie evenly.
    const std::int64_t apart = std::int64_t{slots.apart} * step * slot_floats;
    const float* const slot0 = slot(first);
    const float* const slot1 = count > 1 ? slot(first + step) : slot0;
    // The first splits travel while weights are found, where there are registers to wait in.
    constexpr bool kAhead = kSpare >= 64;
    float ref = -INFINITY;
#pragma unroll 1
    for (int begin = 0; begin < count; begin += kRound) {
      const int splits = min(count - begin, kRound);
      const float* const slot_begin = begin == 0 ? slot0 : slot1 + (begin - 1) * apart;
#pragma unroll
      for (int group = 0; group < kRows / 8; group += kGroup) {
        const float* from = slot_begin + 2 * kRows + thread % Traits::kOutThreads * 4;
        const auto from1 = from - slot_begin + (begin == 0 ? slot1 : slot_begin + apart);
#pragma unroll 1
        for (int i0 = 0; i0 < splits; i0 += kBatch) {
          float4 x[kBatch][kVectors];
          const auto fetch = [&] {
#pragma unroll
            for (int b = 0; b < kBatch; ++b) {
#pragma unroll
              for (int v = 0; v < kVectors; ++v) {
                x[b][v] = __ldcg(reinterpret_cast<const float4*>(from) +
                                 (group * kBlocks + v) * Traits::kOutThreads);
              }
              // Past the last, that one again: it will not be added.
              if (i0 + b + 1 < splits) from = b == 0 && i0 == 0 ? from1 : from + apart;
            }
          };
          if constexpr (kAhead) fetch();
          if (group == 0 && i0 == 0) {
            find_weights<kLanes>(begin, splits, slot_begin, begin == 0 ? slot1 : slot_begin + apart,
                                 apart, ref, table, shared);
            if (begin > 0) rescale(o, sum, shared.by_warp);
          }
          if constexpr (!kAhead) fetch();
#pragma unroll
          for (int b = 0; b < kBatch; ++b) {
            if (i0 + b >= splits) break;
            add(x[b], group, weights + (i0 + b) * (kRows / 2), o, sum);
          }
        }
      }
    }
    if (thread < 4) {
#pragma unroll
      for (int i = 0; i < kRows / 4; ++i) shared.sum[i / 2 * 8 + thread * 2 + i % 2] = sum[i];
    }
    sync_consumers<Traits>();
  }

 private:
  // Of a round of splits, `ref` being the largest reference of those before: the largest of all,
  // and the table of weights and sums, which is there after the barrier that this ends with.
  template <int kLanes>
  __device__ __forceinline__ static void find_weights(int begin, int splits, const float* slot0,
                                                      const float* slot1, std::int64_t apart,
                                                      float& ref, float2* table,
                                                      WgmmaStorage<Traits>& shared) {
    const int thread = thread_index();
    // Rows past the last take part in shuffles only.
    const int row = thread / kLanes;
    const bool real = Traits::kConsumers / kRows <= 32 || row < kRows;
    const float before = ref;
    if (begin > 0) sync_consumers<Traits>();  // the table has been read
#pragma unroll 1
    for (int i = thread % kLanes; i < splits && real; i += kLanes) {
      const float* const from = i == 0 ? slot0 : slot1 + (i - 1) * apart;
      const float2 y = __ldcg(reinterpret_cast<const float2*>(from) + row);
      table[i * kRows + row] = y;
      ref = fmaxf(ref, y.x);
    }
#pragma unroll
    for (int d = 1; d < kLanes; d *= 2) ref = fmaxf(ref, __shfl_xor_sync(~0u, ref, d));
#pragma unroll 1
    for (int i = thread % kLanes; i < splits && real; i += kLanes) {
      float2& y = table[i * kRows + row];
      y.x = weight_of(y.x, ref);
    }
    if (thread % kLanes == 0 && real) {
      shared.ref[row] = ref;
      shared.by_warp[row][0] = weight_of(before, ref);
    }
    sync_consumers<Traits>();
  }

  // o, sum += one split, of a group of rows; `weights`: (weight, sum) of two of the thread's rows,
  // and of two more every 8 rows.
  __device__ __forceinline__ static void add(const float4 (&x)[kVectors], int group,
                                             const float4* weights, Accumulators& o,
                                             float (&sum)[kRows / 4]) {
#pragma unroll
    for (int j = group; j < group + kGroup; ++j) {
      const float4 w = weights[4 * j];
      sum[2 * j] = __fmaf_rn(w.y, w.x, sum[2 * j]);
      sum[2 * j + 1] = __fmaf_rn(w.w, w.z, sum[2 * j + 1]);
#pragma unroll
      for (int h = 0; h < kBlocks; ++h) {
        const float4 y = x[(j - group) * kBlocks + h];
        o[h][4 * j] = __fmaf_rn(y.x, w.x, o[h][4 * j]);
        o[h][4 * j + 1] = __fmaf_rn(y.y, w.z, o[h][4 * j + 1]);
        o[h][4 * j + 2] = __fmaf_rn(y.z, w.x, o[h][4 * j + 2]);
        o[h][4 * j + 3] = __fmaf_rn(y.w, w.z, o[h][4 * j + 3]);
      }
    }
  }

  // What came before, seen from the reference of more splits.
  __device__ __forceinline__ static void rescale(Accumulators& o, float (&sum)[kRows / 4],
                                                 const float (*factor)[Traits::kConsumerWarps]) {
#pragma unroll
    for (int i = 0; i < kRows / 4; ++i) {
      const float left = factor[i / 2 * 8 + lane_index() % 4 * 2 + i % 2][0];
      sum[i] *= left;
#pragma unroll
      for (int h = 0; h < kBlocks; ++h) {
        o[h][i / 2 * 4 + i % 2] *= left;
        o[h][i / 2 * 4 + 2 + i % 2] *= left;
      }
    }
  }
};

}  // namespace pagedecode::cuda
