// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// mbarriers of shared memory, as sm_80 has them. Raw PTX: CuTe's wrappers begin at sm_90.
#pragma once

#include <cute/arch/util.hpp>

#include <cstdint>

#include "cuda/thread.cuh"

namespace pagedecode::cuda {

struct Barrier {
  std::uint64_t state;

  __device__ __forceinline__ std::uint32_t address() { return cute::cast_smem_ptr_to_uint(&state); }
  __device__ __forceinline__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address()), "r"(arrivals));
  }
  // One arrival; what this thread wrote before is visible to who waits.
  __device__ __forceinline__ void arrive() {
    asm volatile("{\n.reg .b64 t;\nmbarrier.arrive.shared.b64 t, [%0];\n}" ::"r"(address())
                 : "memory");
  }
  // One arrival, once this thread's cp.async copies so far have landed.
  __device__ __forceinline__ void arrive_after_copies() {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(address()) : "memory");
  }
  // Whether the phase of this parity has ended.
  __device__ __forceinline__ bool test(std::uint32_t parity) {
    std::uint32_t ended;
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(ended)
        : "r"(address()), "r"(parity)
        : "memory");
    return ended != 0;
  }
  // Waits for the end of the phase of this parity.
  __device__ __forceinline__ void wait(std::uint32_t parity) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
        "@p bra DONE;\nbra AGAIN;\nDONE:\n}" ::"r"(address()),
        "r"(parity)
        : "memory");
#else
    asm volatile(
        "{\n.reg .pred p;\nAGAIN:\nmbarrier.test_wait.parity.shared.b64 p, [%0], %1;\n"
        "@p bra DONE;\nbra AGAIN;\nDONE:\n}" ::"r"(address()),
        "r"(parity)
        : "memory");
#endif
  }
};

// Arrivals of a warp that gives a stage back: one lane's, after the warp's barrier, which puts the
// other lanes' reads before it. racecheck does not see that order (tests/cpp/cuda/barrier_race.cu):
// in a build for it (PAGEDECODE_RACECHECK) every lane arrives.
#if defined(PAGEDECODE_RACECHECK) && PAGEDECODE_RACECHECK
inline constexpr int kWarpArrivals = 32;
#else
inline constexpr int kWarpArrivals = 1;
#endif

__device__ __forceinline__ void arrive_as_warp(Barrier& barrier) {
  __syncwarp();
  if (kWarpArrivals == 32 || threadIdx.x % 32 == 0) barrier.arrive();
}

// A barrier of some of a block's warps.
__device__ __forceinline__ void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// The same, and whether any of their threads says yes. By whole warps.
template <int kId, int kThreads>
__device__ __forceinline__ bool any_of(bool yes) {
  std::uint32_t any;
  asm volatile(
      "{\n.reg .pred p, q;\nsetp.ne.u32 p, %1, 0;\nbarrier.cta.red.or.aligned.pred q, %2, %3, p;\n"
      "selp.u32 %0, 1, 0, q;\n}"
      : "=r"(any)
      : "r"(std::uint32_t(yes)), "n"(kId), "n"(kThreads)
      : "memory");
  return any != 0;
}

}  // namespace pagedecode::cuda
