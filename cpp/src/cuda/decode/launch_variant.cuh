// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "cuda/decode/kernel.cuh"
#include "cuda/decode/launch_variant.h"

namespace pagedecode::cuda {

template <int kIndex>
cudaError_t launch_variant(const DecodeProblem& p, const Plan& plan, std::size_t smem,
                           const DeviceInfo& device) {
  const auto kernel = decode_kernel<DecodeTraits<kIndex>>;
  // More than 48 KB has to be asked for once on each device; devices past 64 ask each time.
  static std::atomic<std::uint64_t> asked{0};
  const std::uint64_t bit = device.ordinal < 64 ? std::uint64_t{1} << device.ordinal : 0;
  if (!(asked.load(std::memory_order_acquire) & bit)) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, device.max_smem_optin);
    if (error != cudaSuccess) return error;
    asked.fetch_or(bit, std::memory_order_release);
  }
  kernel<<<plan.chunks * plan.heads, (kWarps + 1) * 32, smem,
           static_cast<cudaStream_t>(p.stream)>>>(p, plan);
  return cudaPeekAtLastError();
}

}  // namespace pagedecode::cuda
