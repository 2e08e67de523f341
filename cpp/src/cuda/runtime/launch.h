// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "cuda/runtime/error.h"

namespace pagedecode::cuda {

// Launches a kernel and throws if that fails. The error is the launch's own: cudaGetLastError could
// return what another library left behind.
template <typename... Params, typename... Args>
void launch(const char* name, void (*kernel)(Params...), dim3 grid, dim3 block,
            std::size_t shared_bytes, void* stream, Args&&... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  check_cuda(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...), name);
}

// Blocks for `items` in groups of `per_block`, on grid.x: it alone reaches past 65,535. The kernels
// that use it loop over the items in strides of the grid, so that any count is right.
inline unsigned blocks_for(std::int64_t items, std::int64_t per_block) {
  constexpr std::int64_t kMaxBlocks = 0x7fffffff;
  const std::int64_t blocks = (items + per_block - 1) / per_block;
  return static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
}

}  // namespace pagedecode::cuda
