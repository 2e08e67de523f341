// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Finding a block's chunk from the lengths on the device: each thread sums the units of a run of
// sequences, the block scans the sums, and the run that holds the chunk's first unit is searched
// the same way until it is one sequence. Two rounds up to threads^2 sequences; one up to `threads`.
#pragma once

#include "cuda/schedule/work.h"

namespace pagedecode::cuda {

// Inclusive scan over the block's threads; `scratch` has one entry a warp. Ends with a barrier.
__device__ inline std::int64_t block_inclusive_scan(std::int64_t x, std::int64_t* scratch) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const std::int64_t y = __shfl_up_sync(~0u, x, d);
    if (lane >= d) x += y;
  }
  if (lane == 31) scratch[warp] = x;
  __syncthreads();
  for (int w = 0; w < warp; ++w) x += scratch[w];
  __syncthreads();
  return x;
}

struct LocateStorage {
  std::int64_t warp_sums[32];
  ChunkStart found;
};

// Every thread of the block calls it and gets the same answer.
__device__ inline ChunkStart locate_chunk(const DecodeProblem& p, const Plan& plan,
                                          std::int32_t chunk, LocateStorage& shared) {
  std::int64_t first = 0;  // sequences [first, end)
  std::int64_t end = p.batch;
  std::int64_t base = 0;     // units before `first`
  std::int64_t target = -1;  // the chunk's first unit; known after the first scan
  std::int64_t total = 0;
  while (true) {
    const std::int64_t run = ceil_div64(end - first, blockDim.x);
    const std::int64_t from = min64(first + threadIdx.x * run, end);
    const std::int64_t to = min64(from + run, end);
    std::int64_t units = 0;
    for (std::int64_t b = from; b < to; ++b) units += sequence_units(load_shape(p, plan, b));
    const std::int64_t inclusive = block_inclusive_scan(units, shared.warp_sums);
    if (target < 0) {
      if (threadIdx.x == blockDim.x - 1) shared.found.total = inclusive;
      __syncthreads();
      total = shared.found.total;
      target = chunk_begin(plan, total, chunk);
      if (target >= chunk_begin(plan, total, chunk + 1)) return {total, 0, 0};
    }
    const std::int64_t before = base + inclusive - units;
    if (before <= target && target < before + units) shared.found = {total, from, before};
    __syncthreads();
    const ChunkStart found = shared.found;
    __syncthreads();
    if (run == 1) return found;
    first = found.seq;
    end = min64(first + run, end);
    base = found.seq_begin;
  }
}

}  // namespace pagedecode::cuda
