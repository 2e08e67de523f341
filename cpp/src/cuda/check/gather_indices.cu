// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/check/gather_indices.h"
#include "cuda/runtime/launch.h"

namespace pagedecode::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    gather_indices(IndexArray from, std::int64_t row_stride, std::int64_t cols, std::int64_t count,
                   std::int64_t* out) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += step) {
    const std::int64_t at = i / cols * row_stride + i % cols * from.stride;
    out[i] = from.wide ? static_cast<const std::int64_t*>(from.data)[at]
                       : static_cast<const std::int32_t*>(from.data)[at];
  }
}

}  // namespace

void launch_gather_indices(const IndexArray& from, std::int64_t rows, std::int64_t row_stride,
                           std::int64_t cols, std::int64_t* out, void* stream) {
  const std::int64_t count = rows * cols;
  if (count == 0) return;
  launch("check: gather_indices", gather_indices, dim3(blocks_for(count, kThreads)), dim3(kThreads),
         0, stream, from, row_stride, cols, count, out);
}

}  // namespace pagedecode::cuda
