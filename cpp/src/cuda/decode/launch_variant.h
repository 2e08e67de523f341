// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/device.h"
#include "cuda/schedule/plan.h"
#include "cuda/variants.h"

namespace pagedecode::cuda {

// Launches kVariants[kIndex]; each is instantiated in a file of its own.
template <int kIndex>
cudaError_t launch_variant(const DecodeProblem& p, const Plan& plan, std::size_t smem,
                           const DeviceInfo& device);

}  // namespace pagedecode::cuda
