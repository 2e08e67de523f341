// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The merge of an item's splits by all blocks that had one, at the end of the launch: each has sent
// its partial state, and gathers a share of the rows' columns from all of them. A state says itself
// that it is there: between calls the exchange is zero, no word that is sent is, and who reads a
// word puts the zero back. So there is no fence, no counter and no last block; but every block of
// the launch has to run at once (a cooperative launch).
//
//   slot: float4 [kUnits][kUnitVectors + 1]
//     unit    a pair of rows and kUnitVectors pairs of their columns: (row, column) (0, 0), (1, 0),
//             (0, 1), (1, 1), which one thread holds; last, both rows' states (reference, sum).
//             Split s of `splits` gathers units s, s + splits, .., a warp each.
#pragma once

#include "cuda/decode_wgmma/mainloop.cuh"
#include "cuda/decode_wgmma/rows_mainloop.cuh"
#include "cuda/merge/sink.cuh"

namespace pagedecode::cuda {

// A word that is not zero: -0 for 0.
__device__ __forceinline__ float never_zero(float x) { return x == 0.0f ? -0.0f : x; }

// What another block may be writing.
__device__ __forceinline__ float4 load_exchanged(const float4* at) {
  float4 x;
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "l"(at)
               : "memory");
  return x;
}
__device__ __forceinline__ void store_exchanged(float4* at, float4 x) {
  asm volatile("st.relaxed.gpu.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at), "f"(x.x), "f"(x.y),
               "f"(x.z), "f"(x.w)
               : "memory");
}
__device__ __forceinline__ bool is_there(float4 x) {
  return min(min(__float_as_uint(x.x), __float_as_uint(x.y)),
             min(__float_as_uint(x.z), __float_as_uint(x.w))) != 0;
}

// Where one element of a vector goes.
struct GatheredPlace {
  void* out = nullptr;   // null: past the last row
  float* lse = nullptr;  // null: not this element's
  float sink = 0.0f;
  float v_scale = 0.0f;

  // `row` of the work's tile.
  __device__ __forceinline__ void find(const DecodeProblem& p, const Plan& plan, const Work& w,
                                       int row, int column) {
    const int f = w.row0 + row;
    if (f >= w.m * p.group) return;
    const SequenceView s = view_of(w);
    const int i = plan.row_of(f);
    const int q_head = w.head * p.group + f - i * p.group;
    const std::int64_t at = out_offset(p, s, i, q_head, column);
    out = static_cast<char*>(p.out.data) + (p.out.dtype == DType::kFloat32 ? 4 * at : 2 * at);
    if (p.lse.data && column == 0) lse = lse_place(p, s, i, q_head);
    sink = sink_of(p, q_head);
    v_scale = p.v_scale[w.head];
  }

  __device__ __forceinline__ void write(const DecodeProblem& p, SoftmaxState state, float x) const {
    if (!out) return;
    const RowResult result = finish(state, sink, p.lse_base2);
    const float y = (x + 0.0f) * (result.out_scale * v_scale);
    if (p.out.dtype == DType::kFloat32) {
      *static_cast<float*>(out) = y;
    } else if (p.out.dtype == DType::kFloat16) {
      *static_cast<__half*>(out) = __float2half_rn(y);
    } else {
      *static_cast<__nv_bfloat16*>(out) = __float2bfloat16_rn(y);
    }
    if (lse) *lse = result.lse;
  }
};

template <class Traits>
class WgmmaGather {
 public:
  static constexpr int kLanes = wgmma_gather_lanes(Traits::kVariant);
  static constexpr int kUnits = wgmma_gather_units(Traits::kVariant);
  static constexpr int kUnitVectors = 32 / kLanes;  // a warp's
  static constexpr int kUnitsOfPair = kUnits / (Traits::kRows / 2);
  static constexpr int kUnitStride = kUnitVectors + 1;
  static constexpr int kSlotVectors = wgmma_slot_bytes(Traits::kVariant) / 16;
  static_assert(kSlotVectors == kUnits * kUnitStride);

  __device__ WgmmaGather(const DecodeProblem& p, const Plan& plan, const Work& w)
      : p_(p),
        plan_(plan),
        w_(w),
        slot0_(reinterpret_cast<char*>(plan.exchange) +
               static_cast<std::int64_t>(w.origin) * (2 * kSlotVectors * 16)) {}

  // The state of this block's split: O, and references and sums as they lie in `shared`, where the
  // thread of a row has just written its own.
  __device__ __forceinline__ void send(const WgmmaMainloop<Traits>& mainloop,
                                       const WgmmaStorage<Traits>& shared) const {
    float4* const to = slot(w_.split);
    const int thread = thread_index();
    test_delay();
    if (thread < Traits::kOutThreads) {
      // A thread has one vector of a pair in each block of 64 columns, and of every fourth pair.
      const int lane = thread % 32;
      const int vector = (mainloop.first_block * 4 + thread / 32 % 4) * 8 + lane / 4;
      float4* const mine = to + place(lane % 4, vector);
#pragma unroll
      for (int j = 0; j < Traits::kRows / 8; ++j) {
#pragma unroll
        for (int h = 0; h < Traits::kOwnBlocks; ++h) {
          const float* const o = mainloop.o[h] + 4 * j;
          send_vector(mine + place(4 * j, 32 * h), {o[0], o[1], o[2], o[3]});
        }
      }
    }
    sync_consumers<Traits>();
#pragma unroll 1
    for (int unit = thread; unit < kUnits; unit += Traits::kConsumers) {
      const int row = unit / kUnitsOfPair * 2;
      send_vector(to + unit * kUnitStride + kUnitVectors,
                  {shared.ref[row], shared.sum[row], shared.ref[row + 1], shared.sum[row + 1]});
    }
  }

  // The same with rows first: by the threads that hold them.
  __device__ __forceinline__ void send(const SoftmaxState (&state)[2],
                                       const float (&o)[Traits::kHeadDim / 2]) const {
    const int lane = lane_index();
    const int pair = RowsSoftmax<Traits>::row_of(0) / 16 * 8 + lane / 4;
    float4* const mine = slot(w_.split) + place(pair, lane % 4);
    test_delay();
#pragma unroll
    for (int j = 0; j < Traits::kHeadDim / 8; ++j) {
      send_vector(mine + place(0, 4 * j), {o[4 * j], o[4 * j + 2], o[4 * j + 1], o[4 * j + 3]});
    }
    float4* const states = slot(w_.split) + place(pair, 0) + kUnitVectors;
#pragma unroll 1
    for (int unit = lane % 4; unit < kUnitsOfPair; unit += 4) {
      send_vector(states + unit * kUnitStride,
                  {state[0].ref, state[0].sum, state[1].ref, state[1].sum});
    }
  }

  // This split's share of the rows: out of the exchange, to their place. A round waits for memory,
  // so that a warp has as much on its way at a time as there is.
  __device__ __forceinline__ void run() const {
    if (w_.splits <= 4) {
      run_units<1, 4, 1>();
    } else if (w_.splits <= 8) {
      run_units<kLanes, 8 / kLanes, 2>();
    } else if (w_.splits <= 16) {
      run_units<kLanes, 16 / kLanes, 1>();
    } else {
      run_units<kLanes, 8, 1>();
    }
  }

 private:
  // Of a pair's vector in a slot. Places of pairs, and of whole units, add up.
  __device__ __forceinline__ static constexpr int place(int pair, int vector) {
    return (pair * kUnitsOfPair + vector / kUnitVectors) * kUnitStride + vector % kUnitVectors;
  }
  __device__ __forceinline__ static void send_vector(float4* to, float4 x) {
    store_exchanged(to, {never_zero(x.x), never_zero(x.y), never_zero(x.z), never_zero(x.w)});
  }
  // The tile's row, and the column, of an element of a pair's vector.
  __device__ __forceinline__ static int row_of(int pair, int odd) {
    return Traits::kRowsFirst ? pair / 8 * 16 + pair % 8 + 8 * odd : 2 * pair + odd;
  }
  __device__ __forceinline__ static int column_of(int vector, int second) {
    if (Traits::kRowsFirst) return 2 * vector + second;
    return vector / 8 * 16 + (Traits::kBytes ? vector % 8 * 2 + second : vector % 8 + 8 * second);
  }

  // Splits s, s + kShares, .. of a vector, kCount of them: what a lane has on its way.
  template <int kShares, int kCount>
  struct Batch {
    float4 values[kCount];
    float4 states[kCount];

    __device__ __forceinline__ void begin(const WgmmaGather& g, int splits, int s, int vector_at,
                                          int states_at) {
#pragma unroll
      for (int b = 0; b < kCount; ++b) {
        // Splits past the last add nothing, and are there.
        values[b] = float4{-0.0f, -0.0f, -0.0f, -0.0f};
        states[b] = float4{-INFINITY, -0.0f, -INFINITY, -0.0f};
        if (s + b * kShares < splits) {
          values[b] = load_exchanged(g.slot(s + b * kShares) + vector_at);
          states[b] = load_exchanged(g.slot(s + b * kShares) + states_at);
        }
      }
    }
    // Waits until all are there, and takes the values out.
    __device__ __forceinline__ void end(const WgmmaGather& g, int splits, int s, int vector_at,
                                        int states_at) {
      test_delay();
#pragma unroll 1
      for (int turn = 0;; ++turn) {
        const float4* missing = nullptr;
#pragma unroll
        for (int b = 0; b < kCount; ++b) {
          if (!is_there(values[b])) missing = g.slot(s + b * kShares) + vector_at;
          if (!is_there(states[b])) missing = g.slot(s + b * kShares) + states_at;
        }
        if (!missing) break;
        // Who waits for long asks for little.
        __nanosleep(20);
        while (turn >= 8 && !is_there(load_exchanged(missing))) __nanosleep(1000);
#pragma unroll
        for (int b = 0; b < kCount; ++b) {
          const float4* const from = g.slot(s + b * kShares);
          if (!is_there(values[b])) values[b] = load_exchanged(from + vector_at);
          if (!is_there(states[b])) states[b] = load_exchanged(from + states_at);
        }
      }
#pragma unroll
      for (int b = 0; b < kCount; ++b) {
        if (s + b * kShares < splits) {
          store_exchanged(g.slot(s + b * kShares) + vector_at, {0.0f, 0.0f, 0.0f, 0.0f});
        }
      }
    }
  };

  // What some splits are of a vector: its elements, and the sums of its two rows, seen from `ref`.
  struct Share {
    float ref[2];
    float sum[2] = {0.0f, 0.0f};
    float x[4] = {0.0f, 0.0f, 0.0f, 0.0f};

    // += this lane's batch; ref becomes the largest reference of all lanes that share the vector.
    template <int kShares, int kCount>
    __device__ __forceinline__ void add(const Batch<kShares, kCount>& batch, bool first) {
      float to[2] = {batch.states[0].x, batch.states[0].z};
#pragma unroll
      for (int b = 1; b < kCount; ++b) {
        to[0] = fmaxf(to[0], batch.states[b].x);
        to[1] = fmaxf(to[1], batch.states[b].z);
      }
#pragma unroll
      for (int d = 1; d < kShares; d *= 2) {
        to[0] = fmaxf(to[0], __shfl_xor_sync(~0u, to[0], d));
        to[1] = fmaxf(to[1], __shfl_xor_sync(~0u, to[1], d));
      }
      if (!first) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          to[r] = fmaxf(to[r], ref[r]);
          const float left = weight_of(ref[r], to[r]);
          sum[r] *= left, x[r] *= left, x[2 + r] *= left;
        }
      }
      ref[0] = to[0], ref[1] = to[1];
#pragma unroll
      for (int b = 0; b < kCount; ++b) {
        const float4 state = batch.states[b];
        const float4 y = batch.values[b];
        const float w[2] = {weight_of(state.x, to[0]), weight_of(state.z, to[1])};
        sum[0] = __fmaf_rn(state.y, w[0], sum[0]);
        sum[1] = __fmaf_rn(state.w, w[1], sum[1]);
        x[0] = __fmaf_rn(y.x, w[0], x[0]);
        x[1] = __fmaf_rn(y.y, w[1], x[1]);
        x[2] = __fmaf_rn(y.z, w[0], x[2]);
        x[3] = __fmaf_rn(y.w, w[1], x[3]);
      }
    }
    // Of all lanes that share the vector.
    template <int kShares>
    __device__ __forceinline__ void add_lanes() {
#pragma unroll
      for (int d = 1; d < kShares; d *= 2) {
#pragma unroll
        for (int r = 0; r < 2; ++r) sum[r] += __shfl_xor_sync(~0u, sum[r], d);
#pragma unroll
        for (int e = 0; e < 4; ++e) x[e] += __shfl_xor_sync(~0u, x[e], d);
      }
    }
  };

  // A warp takes kAtOnce times so many units at a time as it has lanes for, where kShares lanes
  // share a vector and have kCount splits on their way each.
  template <int kShares, int kCount, int kAtOnce>
  __device__ __forceinline__ void run_units() const {
    constexpr int kParallel = kLanes / kShares;
    const int thread = thread_index();
    const int lane = thread % 32;
    const int share = lane % kShares;
    const int vector = lane / kShares % kUnitVectors;
    const int splits = w_.splits;
    const int apart = kParallel * splits;  // of a warp's first unit, and the next warp's
#pragma unroll 1
    for (int first = w_.split + thread / 32 * apart; first < kUnits;
         first += Traits::kConsumerWarps * apart * kAtOnce) {
      Batch<kShares, kCount> batches[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int at = first + k * Traits::kConsumerWarps * apart;
        const int unit = at + lane / (kShares * kUnitVectors) * splits;
        batches[k].begin(*this, unit < kUnits ? splits : 0, share, unit * kUnitStride + vector,
                         unit * kUnitStride + kUnitVectors);
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int at = first + k * Traits::kConsumerWarps * apart;
        if (at >= kUnits) break;
        gather(batches[k], at);
      }
    }
  }

  // Units from `first` on, of which the first batch is on its way.
  template <int kShares, int kCount>
  __device__ __forceinline__ void gather(Batch<kShares, kCount>& batch, int first) const {
    constexpr int kParallel = kLanes / kShares;
    constexpr int kElements = kShares < 4 ? 4 / kShares : 1;  // that a lane writes
    const int lane = lane_index();
    const int share = lane % kShares;
    const int unit = first + lane / (kShares * kUnitVectors) * w_.splits;
    const int splits = unit < kUnits ? w_.splits : 0;
    const int vector = lane / kShares % kUnitVectors;
    const int vector_at = unit * kUnitStride + vector;
    const int states_at = unit * kUnitStride + kUnitVectors;
    // While values are on their way.
    GatheredPlace places[kElements];
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const int e = share + i * kShares;
      const int v = unit % kUnitsOfPair * kUnitVectors + vector;  // of the pair
      if (e >= 4 || splits == 0) continue;
      places[i].find(p_, plan_, w_, row_of(unit / kUnitsOfPair, e % 2), column_of(v, e / 2));
    }
    Share x;
#pragma unroll 1
    for (int s = share;;) {
      batch.end(*this, splits, s, vector_at, states_at);
      x.add(batch, s == share);
      s += kCount * kShares;
      if (s - share >= w_.splits) break;
      batch.begin(*this, splits, s, vector_at, states_at);
    }
    x.template add_lanes<kShares>();
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const int e = share + i * kShares;
      const bool odd = e % 2;
      const float y = e < 2 ? (odd ? x.x[1] : x.x[0]) : (odd ? x.x[3] : x.x[2]);
      places[i].write(p_, {odd ? x.ref[1] : x.ref[0], odd ? x.sum[1] : x.sum[0]}, y);
    }
    __syncwarp();  // all have read the states
#pragma unroll 1
    for (int i = lane; i < kParallel * w_.splits; i += 32) {
      const int own = first + i % kParallel * w_.splits;
      if (own < kUnits) {
        store_exchanged(slot(i / kParallel) + own * kUnitStride + kUnitVectors,
                        {0.0f, 0.0f, 0.0f, 0.0f});
      }
    }
  }

  // Split 0 is the last work of its block, the others the first of theirs.
  __device__ __forceinline__ float4* slot(int split) const {
    const int at = (2 * plan_.heads * split + (split == 0)) * (kSlotVectors * 16);
    return reinterpret_cast<float4*>(slot0_ + at);
  }

  const DecodeProblem& p_;
  const Plan& plan_;
  const Work w_;
  char* slot0_;
};

}  // namespace pagedecode::cuda
