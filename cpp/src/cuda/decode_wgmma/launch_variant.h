// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/decode_wgmma/variants.h"
#include "cuda/schedule/plan.h"

namespace pagedecode::cuda {

// Launches kWgmmaVariants[kIndex]; each is instantiated in a file of its own.
template <int kIndex>
cudaError_t launch_wgmma_variant(const DecodeProblem& p, const Plan& plan,
                                 const DeviceInfo& device);

}  // namespace pagedecode::cuda
