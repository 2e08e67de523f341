// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/decode_wgmma/variants.h"
#include "cuda/schedule/plan.h"

namespace pagedecode::cuda {

// Whether this build has these kernels (no_wgmma.cpp stands in for them where it has not).
bool wgmma_is_built();

// Launches kWgmmaVariants[variant] under a plan.
cudaError_t launch_wgmma(int variant, const DecodeProblem& p, const Plan& plan,
                         const DeviceInfo& device);

}  // namespace pagedecode::cuda
