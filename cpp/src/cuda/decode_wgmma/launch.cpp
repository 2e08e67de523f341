// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/decode_wgmma/launch.h"

#include <utility>

#include "cuda/decode_wgmma/launch_variant.h"

namespace pagedecode::cuda {
namespace {

using Launch = cudaError_t (*)(const DecodeProblem&, const Plan&, const DeviceInfo&);

template <int... kIndices>
Launch launcher(int index, std::integer_sequence<int, kIndices...>) {
  static constexpr Launch kLaunchers[] = {&launch_wgmma_variant<kIndices>...};
  return kLaunchers[index];
}

}  // namespace

bool wgmma_is_built() { return true; }

cudaError_t launch_wgmma(int variant, const DecodeProblem& p, const Plan& plan,
                         const DeviceInfo& device) {
  return launcher(variant, std::make_integer_sequence<int, kNumWgmmaVariants>{})(p, plan, device);
}

}  // namespace pagedecode::cuda
