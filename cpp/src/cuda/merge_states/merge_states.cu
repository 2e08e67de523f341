// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Merges attention states of the same rows over disjoint keys:
//   top = max lse_s;  w_s = exp(lse_s - top);  out = sum w_s out_s / sum w_s;
//   lse = top + log(sum w_s).
// States with lse = -inf are left out, their out is never read; with one state left w is 1, so that
// it passes unchanged. The list of states travels in the launch, not through device memory: a graph
// can hold it. A list too long for one launch is merged in chunks, the state so far (float32, in
// the workspace) going first in the next one.
//
// A group of up to 32 lanes takes one (row, head) and walks D in vectors of eight. It reads all of
// a vector, and all LSEs, before it writes: the result may be one of the states.
#include <algorithm>
#include <optional>

#include "cuda/alignment.h"
#include "cuda/merge_states/merge_states.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/workspace.h"
#include "cuda/vectors.cuh"

namespace pagedecode::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kBatch = 4;       // states that a lane has under way
constexpr int kMaxStates = 48;  // of a launch: its arguments fill 4 KB at most

struct State {
  StateView view;
  bool contiguous;  // along D
  bool aligned;     // to vectors
};

struct Params {
  std::int64_t groups;  // rows * Hq
  std::int32_t num_heads;
  std::int32_t head_dim;
  std::int32_t log2_lanes;
  std::int32_t num_states;
  bool base2;
  State result;
  State states[kMaxStates];
};
static_assert(sizeof(Params) <= 4096);

struct At {
  std::int64_t row;
  std::int64_t head;
};

__device__ __forceinline__ float* lse_at(const State& s, At at) {
  return s.view.lse.data + at.row * s.view.lse.row_stride + at.head * s.view.lse.head_stride;
}

__device__ __forceinline__ std::int64_t out_at(const State& s, At at, int d) {
  return at.row * s.view.out.row_stride + at.head * s.view.out.head_stride + d * s.view.dim_stride;
}

// What all lanes of a group know of its states.
struct Weights {
  float top;    // -inf: every state is empty
  float total;  // sum of exp(lse - top)
  int live;     // states that are not empty
  int last;     // the last of them
};

__device__ __forceinline__ float weight(const Params& p, float lse, float top) {
  return p.base2 ? exp2f(lse - top) : expf(lse - top);
}

__device__ __forceinline__ Weights load_weights(const Params& p, At at) {
  Weights w = {-INFINITY, 0.0f, 0, 0};
  bool nan = false;
  for (int s = 0; s < p.num_states; ++s) {
    const float lse = *lse_at(p.states[s], at);
    nan |= isnan(lse);
    w.top = fmaxf(w.top, lse);
    w.live += lse != -INFINITY;
    if (lse != -INFINITY) w.last = s;
  }
  // fmaxf passes NaN over; a row that is NaN stays so.
  if (nan) w.top = NAN;
  for (int s = 0; s < p.num_states; ++s) {
    const float lse = *lse_at(p.states[s], at);
    w.total += lse == -INFINITY ? 0.0f : weight(p, lse, w.top);
  }
  return w;
}

// x[0..count) from element `from` of a state's row on.
__device__ __forceinline__ void load_part(const State& s, std::int64_t from, int count,
                                          float (&x)[kVector]) {
  const RowsView& out = s.view.out;
  if (s.contiguous && count == kVector) {
    load_vector(out.data, out.dtype, from, s.aligned, x);
    return;
  }
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    x[i] = i < count ? load_float(out.data, out.dtype, from + i * s.view.dim_stride) : 0.0f;
  }
}

__device__ __forceinline__ void store_part(const State& s, std::int64_t from, int count,
                                           const float (&x)[kVector]) {
  const RowsView& out = s.view.out;
  if (s.contiguous && count == kVector) {
    store_vector(out.data, out.dtype, from, s.aligned, x);
    return;
  }
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    if (i < count) store_element(out.data, out.dtype, from + i * s.view.dim_stride, x[i]);
  }
}

// States go in batches: all loads of a batch are under way before the first sum.
__device__ __forceinline__ void merge_part(const Params& p, At at, const Weights& w, int d) {
  const int count = min(kVector, p.head_dim - d);
  float sum[kVector] = {};
  bool first = true;
  for (int start = 0; start < p.num_states; start += kBatch) {
    float share[kBatch];
    float x[kBatch][kVector];
    bool full[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int s = start + i;
      const float lse = s < p.num_states ? *lse_at(p.states[s], at) : -INFINITY;
      full[i] = lse != -INFINITY;
      share[i] = full[i] ? weight(p, lse, w.top) : 0.0f;
      if (full[i]) load_part(p.states[s], out_at(p.states[s], at, d), count, x[i]);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (!full[i]) continue;
        // NOTE: not fmaf(share, x, 0) for the first state: that turns -0 into +0.
#pragma unroll
      for (int j = 0; j < kVector; ++j) {
        sum[j] = first ? share[i] * x[i][j] : fmaf(share[i], x[i][j], sum[j]);
      }
      first = false;
    }
  }
  const float total = first ? 1.0f : w.total;
#pragma unroll
  for (int i = 0; i < kVector; ++i) sum[i] = __fdiv_rn(sum[i], total);
  store_part(p.result, out_at(p.result, at, d), count, sum);
}

__device__ __forceinline__ void copy_part(const Params& p, At at, int s, int d) {
  const State& from = p.states[s];
  const State& to = p.result;
  const int count = min(kVector, p.head_dim - d);
  const bool vectors = from.contiguous && from.aligned && to.contiguous && to.aligned;
  if (vectors && count == kVector) {
    copy_vector(to.view.out.data, out_at(to, at, d), from.view.out.data, out_at(from, at, d),
                to.view.out.dtype);
    return;
  }
  for (int i = 0; i < count; ++i) {
    copy_element(to.view.out.data, out_at(to, at, d) + i * to.view.dim_stride, from.view.out.data,
                 out_at(from, at, d) + i * from.view.dim_stride, to.view.out.dtype);
  }
}

__global__ void __launch_bounds__(kThreads) merge_chunk(__grid_constant__ const Params p) {
  const int lanes = 1 << p.log2_lanes;
  const int groups = kThreads >> p.log2_lanes;
  const int lane = threadIdx.x & (lanes - 1);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * groups;
  // All threads of a block make the same number of rounds, so that warps wait complete.
  for (std::int64_t start = static_cast<std::int64_t>(blockIdx.x) * groups; start < p.groups;
       start += step) {
    const std::int64_t group = start + (threadIdx.x >> p.log2_lanes);
    const bool live = group < p.groups;
    const At at = {group / p.num_heads, group % p.num_heads};
    Weights w = {};
    if (live) {
      w = load_weights(p, at);
      // NOTE: one state alone is copied as it is: arithmetic would change the payload of a NaN.
      const bool copies = w.live == 1 && p.states[w.last].view.out.dtype == p.result.view.out.dtype;
      for (int d = lane * kVector; d < p.head_dim; d += lanes * kVector) {
        if (copies) {
          copy_part(p, at, w.last, d);
        } else {
          merge_part(p, at, w, d);
        }
      }
    }
    __syncwarp();  // every lane has read the LSEs; the result's may be one of them
    if (live && lane == 0) {
      // One state alone, or none, passes bit for bit: -0 + log(1) would be +0.
      const bool alone = w.total == 1.0f || w.top == -INFINITY;
      *lse_at(p.result, at) = alone ? w.top : w.top + (p.base2 ? log2f(w.total) : logf(w.total));
    }
  }
}

State make_state(const StateView& view) {
  State state;
  state.view = view;
  state.contiguous = view.dim_stride == 1;
  state.aligned =
      vectors_aligned(view.out.data, view.out.dtype, {view.out.row_stride, view.out.head_stride});
  return state;
}

// Bytes of the state so far between two launches: compact float32, [rows, Hq, D] and [rows, Hq].
std::size_t carry_lse_offset(const MergeProblem& p) {
  return (static_cast<std::size_t>(p.rows) * p.num_heads * p.head_dim * sizeof(float) + 15) / 16 *
         16;
}

std::size_t carry_bytes(const MergeProblem& p) {
  return carry_lse_offset(p) + static_cast<std::size_t>(p.rows) * p.num_heads * sizeof(float);
}

StateView make_carry(const MergeProblem& p, void* data) {
  StateView carry;
  carry.out.data = data;
  carry.out.dtype = DType::kFloat32;
  carry.out.head_stride = p.head_dim;
  carry.out.row_stride = static_cast<std::int64_t>(p.num_heads) * p.head_dim;
  carry.lse.data = reinterpret_cast<float*>(static_cast<char*>(data) + carry_lse_offset(p));
  carry.lse.head_stride = 1;
  carry.lse.row_stride = p.num_heads;
  return carry;
}

}  // namespace

void launch_merge_states(const MergeProblem& p) {
  Params params = {};
  params.groups = p.rows * p.num_heads;
  params.num_heads = p.num_heads;
  params.head_dim = p.head_dim;
  params.base2 = p.lse_base2;
  while (params.log2_lanes < 5 && (kVector << params.log2_lanes) < p.head_dim) ++params.log2_lanes;
  const dim3 grid(blocks_for(params.groups, kThreads >> params.log2_lanes));

  std::optional<Workspace> memory;  // held until the launches
  StateView carry;
  if (p.num_states > kMaxStates) {
    memory.emplace(Purpose::kScratch, p.device.index, p.stream, carry_bytes(p));
    carry = make_carry(p, memory->data());
  }
  for (std::int64_t next = 0; next < p.num_states;) {
    params.num_states = 0;
    if (next > 0) params.states[params.num_states++] = make_state(carry);
    const std::int64_t count =
        std::min(p.num_states - next, std::int64_t{kMaxStates} - params.num_states);
    for (std::int64_t i = 0; i < count; ++i) {
      params.states[params.num_states++] = make_state(p.states[next + i]);
    }
    next += count;
    params.result = make_state(next < p.num_states ? carry : p.result);
    launch("merge_states", merge_chunk, grid, dim3(kThreads), 0, p.stream, params);
  }
}

}  // namespace pagedecode::cuda
