// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Finding a block's chunk from the lengths on the device: each thread sums the units of a run of
// sequences, the block scans the sums, and the run that holds the chunk's first unit is searched
// the same way until it is one sequence. Two rounds up to threads^2 sequences; one up to `threads`.
#pragma once

#include "cuda/schedule/work.h"

namespace pagedecode::cuda {

// Inclusive scan over the block's threads; `scratch` has one entry a warp. Ends with a barrier.
__device__ inline std::int32_t block_inclusive_scan(std::int32_t x, std::int32_t* scratch) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const std::int32_t y = __shfl_up_sync(~0u, x, d);
    if (lane >= d) x += y;
  }
  if (lane == 31) scratch[warp] = x;
  __syncthreads();
#pragma unroll 1
  for (int w = 0; w < warp; ++w) x += scratch[w];
  return x;
}

struct LocateStorage {
  std::int32_t warp_sums[32];
  std::int32_t total;
  std::int32_t seq;
  std::int32_t seq_begin;
};

// Every thread of the block calls it and gets the same answer. Ends with a barrier.
__device__ inline ChunkStart locate_chunk(const DecodeProblem& p, const Plan& plan,
                                          std::int32_t chunk, LocateStorage& shared) {
  const auto threads = static_cast<std::int32_t>(blockDim.x);
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  ChunkStart start{};
  std::int32_t first = 0;  // sequences [first, end)
  auto end = static_cast<std::int32_t>(p.batch);
  std::int32_t base = 0;     // units before `first`
  std::int32_t target = -1;  // the chunk's first unit; known after the first scan
#pragma unroll 1
  while (true) {
    const std::int32_t count = end - first;
    const std::int32_t run = count <= threads ? 1 : (count + threads - 1) / threads;
    // Runs past the last sequence are empty; count and threads bound thread * run.
    const std::int32_t from = min(first + thread * run, end);
    const std::int32_t to = min(from + run, end);
    std::int32_t units = 0;
#pragma unroll 1
    for (std::int32_t b = from; b < to; ++b) {
      const SequenceShape x = load_shape(p, plan, b);
      units += x.row_tiles * x.units;
    }
    const std::int32_t inclusive = block_inclusive_scan(units, shared.warp_sums);
    if (target < 0) {
      if (thread == threads - 1) shared.total = inclusive;
      __syncthreads();
      start.line = ChunkLine(shared.total, plan.chunks);
      target = start.line.begin(chunk);
      if (target >= shared.total) {
        start.seq_begin = target;
        return start;
      }
    }
    const std::int32_t before = base + inclusive - units;
    if (before <= target && target < before + units) {
      shared.seq = from;
      shared.seq_begin = before;
    }
    __syncthreads();
    start.seq = shared.seq;
    start.seq_begin = shared.seq_begin;
    __syncthreads();
    if (run == 1) return start;
    first = start.seq;
    end = min(first + run, end);
    base = start.seq_begin;
  }
}

}  // namespace pagedecode::cuda
