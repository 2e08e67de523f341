// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Finding a block's chunk from the lengths on the device: each thread sums the units of a run of
// sequences, a scan over the threads finds the run that holds the chunk's first unit, and that run
// is searched the same way until it is one sequence. By one warp for few sequences (no barriers),
// by the whole block for many.
#pragma once

#include "cuda/schedule/work.h"

namespace pagedecode::cuda {

inline constexpr int kWarpLocates = 256;  // sequences up to which one warp is enough

// The threads that locate together.
struct WarpScope {
  static constexpr bool kOneWarp = true;
  __device__ __forceinline__ static std::int32_t size() { return 32; }
  __device__ __forceinline__ static std::int32_t index() { return threadIdx.x % 32; }
  __device__ __forceinline__ static void sync() { __syncwarp(); }
};
struct BlockScope {
  static constexpr bool kOneWarp = false;
  __device__ __forceinline__ static std::int32_t size() {
    return static_cast<std::int32_t>(blockDim.x);
  }
  __device__ __forceinline__ static std::int32_t index() {
    return static_cast<std::int32_t>(threadIdx.x);
  }
  __device__ __forceinline__ static void sync() { __syncthreads(); }
};

// What they share, in shared memory.
template <class Scope>
struct LocateStorage {
  std::int32_t total;
  std::int32_t seq;
  std::int32_t seq_begin;
  SequenceShape shape;
  std::int32_t warp_sums[Scope::kOneWarp ? 1 : 32];
};

// Inclusive scan over the scope's threads.
template <class Scope>
__device__ __forceinline__ std::int32_t inclusive_scan(std::int32_t x,
                                                       LocateStorage<Scope>& shared) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const std::int32_t y = __shfl_up_sync(~0u, x, d);
    if (lane >= d) x += y;
  }
  if constexpr (!Scope::kOneWarp) {
    const int warp = threadIdx.x / 32;
    if (lane == 31) shared.warp_sums[warp] = x;
    Scope::sync();
#pragma unroll 1
    for (int w = 0; w < warp; ++w) x += shared.warp_sums[w];
  }
  return x;
}

// Every thread of the scope calls it and gets the same answer. Ends with the scope's barrier.
template <class Scope>
__device__ __forceinline__ ChunkStart locate_chunk(const DecodeProblem& p, const Plan& plan,
                                                   std::int32_t chunk,
                                                   LocateStorage<Scope>& shared) {
  const std::int32_t threads = Scope::size();
  const std::int32_t thread = Scope::index();
  ChunkStart start{};
  if (p.batch == 1) {
    start.shape = load_shape(p, plan, 0);
    start.line = ChunkLine(start.shape.row_tiles * start.shape.units, plan.chunks);
    return start;
  }
  std::int32_t first = 0;  // sequences [first, end)
  auto end = static_cast<std::int32_t>(p.batch);
  std::int32_t base = 0;     // units before `first`
  std::int32_t target = -1;  // the chunk's first unit; known after the first scan
#pragma unroll 1
  while (true) {
    const std::int32_t count = end - first;
    const std::int32_t run =
        count <= threads ? 1 : (count + threads - 1) / static_cast<unsigned>(threads);
    // Runs past the last sequence are empty; count and threads bound thread * run.
    const std::int32_t from = min(first + thread * run, end);
    const std::int32_t to = min(from + run, end);
    std::int32_t units = 0;
    SequenceShape x;
#pragma unroll 1
    for (std::int32_t b = from; b < to; ++b) {
      x = load_shape(p, plan, b);
      units += x.row_tiles * x.units;
    }
    const std::int32_t inclusive = inclusive_scan<Scope>(units, shared);
    if (target < 0) {
      if (thread == threads - 1) shared.total = inclusive;
      Scope::sync();
      start.line = ChunkLine(shared.total, plan.chunks);
      target = start.line.begin(chunk);
      if (target >= shared.total) {
        start.seq_begin = target;
        Scope::sync();
        return start;
      }
    }
    const std::int32_t before = base + inclusive - units;
    if (before <= target && target < before + units) {
      shared.seq = from;
      shared.seq_begin = before;
      shared.shape = x;
    }
    Scope::sync();
    start.seq = shared.seq;
    start.seq_begin = shared.seq_begin;
    if (run == 1) start.shape = shared.shape;
    Scope::sync();
    if (run == 1) return start;
    first = start.seq;
    end = min(first + run, end);
    base = start.seq_begin;
  }
}

}  // namespace pagedecode::cuda
