// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pagedecode::cuda {

// threadIdx.x, where it is asked for: the compiler may not compute what depends on it ahead of the
// loop around. For rare code inside hot loops, whose addresses it would otherwise keep in registers
// all the time, and spill Q for them.
__device__ __forceinline__ int thread_index() {
  int t;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t));
  __builtin_assume(t >= 0 && t < 1024);
  return t;
}
__device__ __forceinline__ int lane_index() { return thread_index() % 32; }

// Nothing, or, in builds that provoke races (PAGEDECODE_TEST_DELAYS), a random pause of a warp.
__device__ __forceinline__ void test_delay() {
#if defined(PAGEDECODE_TEST_DELAYS) && PAGEDECODE_TEST_DELAYS
  unsigned x = static_cast<unsigned>(clock64()) * 2654435761u + blockIdx.x * 40503u;
  x ^= x >> 15;
  if (x % 4 == 0) __nanosleep(x >> 4 & 8191);
#endif
}

}  // namespace pagedecode::cuda
