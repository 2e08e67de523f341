// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Copies slots bit for bit in two launches: all sources into a staging buffer, then from there to
// the destinations. A warp takes one pair of K or V and walks its Hkv rows in units as wide as
// addresses and strides allow.
#include "cuda/alignment.h"
#include "cuda/move/move.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/workspace.h"

namespace pagedecode::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;

// One of K and V; all sizes and strides in units.
struct Side {
  void* cache;
  std::int64_t page_stride;
  std::int64_t token_stride;
  std::int64_t head_stride;
  std::int32_t row_units;    // of a head
  std::int32_t token_units;  // of all heads
  std::int32_t unit;         // bytes: 1, 2, 4, 8, 16
  char* stage;               // [pairs, token_units]
};

struct Params {
  std::int64_t pairs;
  std::int64_t page_size;
  std::int64_t num_slots;
  IndexArray src_slots;
  IndexArray dst_slots;
  Side side[2];
};

// A pair with a member outside the pool is skipped.
__device__ __forceinline__ bool in_pool(const Params& p, std::int64_t slot) {
  return slot >= 0 && slot < p.num_slots;
}

template <typename Unit, bool kToStage>
__device__ __forceinline__ void copy_token(const Params& p, const Side& side, std::int64_t pair,
                                           std::int64_t slot, int lane) {
  const std::int64_t page = slot / p.page_size;
  Unit* const token = static_cast<Unit*>(side.cache) + page * side.page_stride +
                      (slot - page * p.page_size) * side.token_stride;
  Unit* const stage = reinterpret_cast<Unit*>(side.stage) + pair * side.token_units;
  for (int u = lane; u < side.token_units; u += 32) {
    const int head = u / side.row_units;
    Unit* const at = token + head * side.head_stride + (u - head * side.row_units);
    if (kToStage) {
      stage[u] = *at;
    } else {
      *at = stage[u];
    }
  }
}

// grid.y: K and V.
template <bool kToStage>
__global__ void __launch_bounds__(kThreads) copy_slots(__grid_constant__ const Params p) {
  const Side& side = p.side[blockIdx.y];
  const int lane = threadIdx.x % 32;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kWarps;
  for (std::int64_t pair = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
       pair < p.pairs; pair += step) {
    const std::int64_t src = p.src_slots[pair];
    const std::int64_t dst = p.dst_slots[pair];
    if (!in_pool(p, src) || !in_pool(p, dst)) continue;
    const std::int64_t slot = kToStage ? src : dst;
    switch (side.unit) {
      case 16:
        copy_token<uint4, kToStage>(p, side, pair, slot, lane);
        break;
      case 8:
        copy_token<uint2, kToStage>(p, side, pair, slot, lane);
        break;
      case 4:
        copy_token<std::uint32_t, kToStage>(p, side, pair, slot, lane);
        break;
      case 2:
        copy_token<std::uint16_t, kToStage>(p, side, pair, slot, lane);
        break;
      default:
        copy_token<std::uint8_t, kToStage>(p, side, pair, slot, lane);
    }
  }
}

Side make_side(const MoveProblem& p, const CacheView& cache) {
  const std::int64_t size = size_of(cache.dtype);
  const std::int64_t row = p.head_dim * size;
  Side side = {};
  side.cache = cache.data;
  side.unit = static_cast<std::int32_t>(common_alignment(
      cache.data,
      {row, cache.page_stride * size, cache.token_stride * size, cache.head_stride * size}, 16));
  side.page_stride = cache.page_stride * size / side.unit;
  side.token_stride = cache.token_stride * size / side.unit;
  side.head_stride = cache.head_stride * size / side.unit;
  side.row_units = static_cast<std::int32_t>(row / side.unit);
  side.token_units = side.row_units * p.num_kv_heads;
  return side;
}

std::size_t stage_bytes(const MoveProblem& p, const Side& side) {
  const auto bytes = static_cast<std::size_t>(p.pairs) * side.token_units * side.unit;
  return (bytes + 15) / 16 * 16;
}

}  // namespace

void launch_move(const MoveProblem& p) {
  Params params = {};
  params.pairs = p.pairs;
  params.page_size = p.page_size;
  params.num_slots = p.num_pages * p.page_size;
  params.src_slots = p.src_slots;
  params.dst_slots = p.dst_slots;
  params.side[0] = make_side(p, p.k_cache);
  params.side[1] = make_side(p, p.v_cache);
  const std::size_t k_bytes = stage_bytes(p, params.side[0]);
  const std::size_t v_bytes = stage_bytes(p, params.side[1]);
  const Workspace stage(Purpose::kScratch, p.device.index, p.stream, k_bytes + v_bytes);
  params.side[0].stage = static_cast<char*>(stage.data());
  params.side[1].stage = params.side[0].stage + k_bytes;
  const dim3 grid(blocks_for(p.pairs, kWarps), 2);
  launch("move: sources", copy_slots<true>, grid, dim3(kThreads), 0, p.stream, params);
  launch("move: destinations", copy_slots<false>, grid, dim3(kThreads), 0, p.stream, params);
}

}  // namespace pagedecode::cuda
