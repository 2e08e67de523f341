// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "cuda/decode_wgmma/kernel.cuh"
#include "cuda/decode_wgmma/launch_variant.h"
#include "cuda/decode_wgmma/tensor_map.h"

namespace pagedecode::cuda {

template <int kIndex>
cudaError_t launch_wgmma_variant(const DecodeProblem& p, const Plan& plan,
                                 const DeviceInfo& device) {
  using Traits = WgmmaTraits<kIndex>;
  const auto kernel = decode_wgmma_kernel<Traits>;
  // An SM has 228 KB, of which each block costs 1 more.
  static_assert((sizeof(WgmmaStorage<Traits>) + 1024) * Traits::kVariant.blocks_per_sm <=
                228 * 1024);
  // More than 48 KB has to be asked for once on each device; devices past 64 ask each time.
  static std::atomic<std::uint64_t> asked{0};
  const std::uint64_t bit = device.ordinal < 64 ? std::uint64_t{1} << device.ordinal : 0;
  if (!(asked.load(std::memory_order_acquire) & bit)) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(WgmmaStorage<Traits>));
    if (error != cudaSuccess) return error;
    asked.fetch_or(bit, std::memory_order_release);
  }
  CUtensorMap k{}, v{};
  if constexpr (Traits::kTma) {
    cudaError_t error = encode_tensor_map(p, p.k, &k);
    if (error == cudaSuccess) error = encode_tensor_map(p, p.v, &v);
    if (error != cudaSuccess) return error;
  }
  if (plan.exchange) {
    cudaLaunchConfig_t config{};
    config.gridDim = plan.chunks * plan.heads;
    config.blockDim = Traits::kThreads;
    config.dynamicSmemBytes = sizeof(WgmmaStorage<Traits>);
    config.stream = static_cast<cudaStream_t>(p.stream);
    cudaLaunchAttribute together{};
    together.id = cudaLaunchAttributeCooperative;
    together.val.cooperative = 1;
    config.attrs = &together;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, p, plan, k, v);
  }
  kernel<<<plan.chunks * plan.heads, Traits::kThreads, sizeof(WgmmaStorage<Traits>),
           static_cast<cudaStream_t>(p.stream)>>>(p, plan, k, v);
  return cudaPeekAtLastError();
}

}  // namespace pagedecode::cuda
