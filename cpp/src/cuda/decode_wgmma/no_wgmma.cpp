// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Stands in for the wgmma kernels in a build without them (PAGEDECODE_HOPPER=OFF).
#include "cuda/decode_wgmma/launch.h"

namespace pagedecode::cuda {

bool wgmma_is_built() { return false; }

cudaError_t launch_wgmma(int, const DecodeProblem&, const Plan&, const DeviceInfo&) {
  return cudaErrorNotSupported;
}

}  // namespace pagedecode::cuda
