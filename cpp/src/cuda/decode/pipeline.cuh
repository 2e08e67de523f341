// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// What the loading warp and the consuming warps share: a ring of stages, K and V of a stage each
// with a full and an empty barrier, a header for each stage, a ring of Work.
#pragma once

#include "cuda/decode/barrier.cuh"
#include "cuda/decode/traits.h"
#include "cuda/schedule/work.h"

namespace pagedecode::cuda {

struct StageHeader {
  std::int32_t work;  // its place in the ring of Work; -1: there is no more
  std::int32_t key;   // first key of the stage: a multiple of the tile
  std::int32_t unused;
  std::int32_t last;
  std::uint32_t bad[4];  // bit of each key whose page id is outside the pool
};
static_assert(sizeof(StageHeader) == kHeaderBytes);

// Ids of named barriers: 0 is __syncthreads.
inline constexpr int kConsumerBarrier = 1;
inline constexpr int kTeamBarrier = 2;  // and the next

template <class Traits>
struct BlockState {
  const DecodeProblem& p;
  const Plan& plan;
  std::uint8_t* smem;

  __device__ std::uint8_t* k_stage(int stage) const {
    return smem + 2 * stage * Traits::kHalfBytes;
  }
  __device__ std::uint8_t* v_stage(int stage) const { return k_stage(stage) + Traits::kHalfBytes; }
  __device__ std::uint8_t* q() const { return smem + plan.shared.q; }
  __device__ Work* works() const { return reinterpret_cast<Work*>(smem + plan.shared.work); }
  __device__ StageHeader* headers() const {
    return reinterpret_cast<StageHeader*>(smem + plan.shared.header);
  }
  __device__ Barrier& barrier(int stage, int which) const {
    return reinterpret_cast<Barrier*>(smem + plan.shared.barriers)[kStageBarriers * stage + which];
  }
  __device__ Barrier& full_k(int stage) const { return barrier(stage, 0); }
  __device__ Barrier& full_v(int stage) const { return barrier(stage, 1); }
  __device__ Barrier& empty_k(int stage) const { return barrier(stage, 2); }
  __device__ Barrier& empty_v(int stage) const { return barrier(stage, 3); }
  // The header is there, ahead of the keys: Q can be fetched.
  __device__ Barrier& header(int stage) const { return barrier(stage, 4); }
  __device__ float* row_scale() const {
    return reinterpret_cast<float*>(smem + plan.shared.row_scale);
  }

  // By one thread, before a barrier of the block.
  __device__ void init_barriers() const {
    for (int stage = 0; stage < plan.stages; ++stage) {
      full_k(stage).init(32);
      full_v(stage).init(32);
      empty_k(stage).init(kWarps * kWarpArrivals);
      empty_v(stage).init(kWarps * kWarpArrivals);
      header(stage).init(1);
    }
  }

  __device__ __forceinline__ static void sync_consumers() {
    named_sync(kConsumerBarrier, kWarps * 32);
  }
  // Barrier of the warps that share keys.
  __device__ __forceinline__ void sync_team() const {
    if (plan.team_log2 == 0) {
      __syncwarp();
    } else if (plan.team_log2 == 1) {
      named_sync(kTeamBarrier + threadIdx.x / 64, 64);
    } else {
      named_sync(kTeamBarrier, kWarps * 32);
    }
  }
};

// A place in the ring.
struct RingPosition {
  int stage = 0;
  std::uint32_t parity = 0;  // of the full barriers' phase; the empty barriers' is the other

  __device__ __forceinline__ void advance(int stages) {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

}  // namespace pagedecode::cuda
