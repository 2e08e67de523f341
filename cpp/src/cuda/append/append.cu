// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Writes tokens into cache slots: x / scale, rounded to the cache's type.
// A group of up to 32 lanes takes one token of K or V and walks its Hkv * D elements in vectors of
// eight. Of equal slots one token wins as a whole: with few tokens the last, found by looking
// through those that follow; with many, whichever wrote its number into the slot's cell last.
//
// Legend: T tokens, P page size; source [T, Hkv, D], target by (page, offset, head).
#include "cuda/append/append.h"

#include <optional>

#include "cuda/alignment.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/workspace.h"
#include "cuda/vectors.cuh"

namespace pagedecode::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kBatch = 4;  // vectors that a lane has under way
// Up to here each group looks through the slots that follow; above, a launch before this one fills
// the cells (H200: 1024 tokens took 10.3 us by looking, 8.2 us with cells; 64 took 6.1 us).
constexpr std::int64_t kMaxScan = 512;

// One of K and V.
struct Side {
  RowsView source;  // [T, Hkv, D]
  CacheView target;
  ScaleView scale;
  bool source_aligned;
  bool target_aligned;
  bool scaled;  // not a host scale of 1
};

struct Params {
  std::int64_t tokens;
  std::int64_t page_size;
  std::int64_t num_pages;
  std::int32_t head_vectors;   // D / 8
  std::int32_t token_vectors;  // Hkv * D / 8
  std::int32_t log2_lanes;     // of a group
  IndexArray slots;
  Side side[2];
  std::int32_t* cells;  // [num_pages * P] token that writes the slot; null: scan
};

__device__ __forceinline__ bool in_pool(const Params& p, std::int64_t slot) {
  return slot >= 0 && slot < p.num_pages * p.page_size;
}

__global__ void __launch_bounds__(kThreads) claim_slots(__grid_constant__ const Params p) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t t = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       t < p.tokens; t += step) {
    const std::int64_t slot = p.slots[t];
    if (in_pool(p, slot)) p.cells[slot] = static_cast<std::int32_t>(t);
  }
}

// Whether another token writes this slot in the place of token t. All lanes of a warp ask together.
__device__ __forceinline__ bool loses(const Params& p, std::int64_t t, std::int64_t slot, bool live,
                                      int lane) {
  if (p.cells != nullptr) return live && p.cells[slot] != static_cast<std::int32_t>(t);
  const int lanes = 1 << p.log2_lanes;
  bool found = false;
  if (live) {
    for (std::int64_t u = t + 1 + lane; u < p.tokens; u += lanes) found |= p.slots[u] == slot;
  }
  const unsigned group = lanes == 32 ? 0xffffffffu : (1u << lanes) - 1;
  const unsigned first_lane = threadIdx.x % 32 / lanes * lanes;
  return (__ballot_sync(0xffffffffu, found) >> first_lane & group) != 0;
}

// Where vector v of a token lies, from the token's start: (head, d) by the strides of heads.
struct Place {
  int head;
  int d;
};

__device__ __forceinline__ Place place_of(const Params& p, int v) {
  const int head = v / p.head_vectors;
  return {head, (v - head * p.head_vectors) * kVector};
}

__device__ __forceinline__ void store_scaled(const Side& side, std::int64_t target, Place place,
                                             float (&x)[kVector]) {
  if (side.scaled) {
    const float scale = side.scale[place.head];
#pragma unroll
    for (int i = 0; i < kVector; ++i) x[i] = __fdiv_rn(x[i], scale);
  }
  store_vector(side.target.data, side.target.dtype,
               target + place.head * side.target.head_stride + place.d, side.target_aligned, x);
}

// The lane's vectors of a token, a batch at a time: all loads of a batch are under way before its
// first store, which the compiler could not do by itself (source and target might overlap).
__device__ __forceinline__ void store_token(const Params& p, const Side& side, std::int64_t t,
                                            std::int64_t slot, int lane) {
  const std::int64_t page = slot / p.page_size;
  const std::int64_t target =
      page * side.target.page_stride + (slot - page * p.page_size) * side.target.token_stride;
  const std::int64_t source = t * side.source.row_stride;
  const int lanes = 1 << p.log2_lanes;
  float x[kVector];
  int v = lane;
  if (side.source_aligned) {
    for (; v + (kBatch - 1) * lanes < p.token_vectors; v += kBatch * lanes) {
      RawVector raw[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const Place place = place_of(p, v + i * lanes);
        raw[i] = load_raw(side.source.data, side.source.dtype,
                          source + place.head * side.source.head_stride + place.d);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        widen(raw[i], side.source.dtype, x);
        store_scaled(side, target, place_of(p, v + i * lanes), x);
      }
    }
  }
#pragma unroll 1
  for (; v < p.token_vectors; v += lanes) {
    const Place place = place_of(p, v);
    load_vector(side.source.data, side.source.dtype,
                source + place.head * side.source.head_stride + place.d, side.source_aligned, x);
    store_scaled(side, target, place, x);
  }
}

// grid.y: K and V.
__global__ void __launch_bounds__(kThreads, 6) append_tokens(__grid_constant__ const Params p) {
  const int groups = kThreads >> p.log2_lanes;
  const int lane = threadIdx.x & ((1 << p.log2_lanes) - 1);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * groups;
  // All threads of a block make the same number of rounds, so that warps vote complete.
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * groups; first < p.tokens;
       first += step) {
    const std::int64_t t = first + (threadIdx.x >> p.log2_lanes);
    const std::int64_t slot = t < p.tokens ? p.slots[t] : -1;
    const bool live = in_pool(p, slot);
    if (!loses(p, t, slot, live, lane) && live) store_token(p, p.side[blockIdx.y], t, slot, lane);
  }
}

Side make_side(const RowsView& source, const CacheView& target, const ScaleView& scale) {
  Side side;
  side.source = source;
  side.target = target;
  side.scale = scale;
  side.source_aligned =
      vectors_aligned(source.data, source.dtype, {source.row_stride, source.head_stride});
  side.target_aligned = vectors_aligned(
      target.data, target.dtype, {target.page_stride, target.token_stride, target.head_stride});
  side.scaled = scale.array || scale.value != 1.0f;
  return side;
}

}  // namespace

void launch_append(const AppendProblem& p) {
  Params params = {};
  params.tokens = p.tokens;
  params.page_size = p.page_size;
  params.num_pages = p.num_pages;
  params.head_vectors = p.head_dim / kVector;
  params.token_vectors = p.num_kv_heads * params.head_vectors;
  params.slots = p.slots;
  params.side[0] = make_side(p.k, p.k_cache, p.k_scale);
  params.side[1] = make_side(p.v, p.v_cache, p.v_scale);
  while (params.log2_lanes < 5 && (1 << params.log2_lanes) < params.token_vectors) {
    ++params.log2_lanes;
  }
  std::optional<Workspace> cells;  // held until the launches
  if (p.tokens > kMaxScan) {
    const auto bytes = static_cast<std::size_t>(p.num_pages * p.page_size) * sizeof(std::int32_t);
    cells.emplace(Purpose::kScratch, p.device.index, p.stream, bytes);
    params.cells = static_cast<std::int32_t*>(cells->data());
    launch("append: claim_slots", claim_slots, dim3(blocks_for(p.tokens, kThreads)), dim3(kThreads),
           0, p.stream, params);
  }
  const int groups = kThreads >> params.log2_lanes;
  launch("append", append_tokens, dim3(blocks_for(p.tokens, groups), 2), dim3(kThreads), 0,
         p.stream, params);
}

}  // namespace pagedecode::cuda
