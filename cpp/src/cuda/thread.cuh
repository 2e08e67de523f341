// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pagedecode::cuda {

// threadIdx.x, where it is asked for: the compiler may not compute what depends on it ahead of the
// loop around. For rare code inside hot loops, whose addresses it would otherwise keep in registers
// all the time, and spill Q for them.
__device__ __forceinline__ int thread_index() {
  int t;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t));
  return t;
}
__device__ __forceinline__ int lane_index() { return thread_index() % 32; }

}  // namespace pagedecode::cuda
