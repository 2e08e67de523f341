// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/decode_wgmma/launch_variant.cuh"

template cudaError_t
pagedecode::cuda::launch_wgmma_variant<pagedecode::cuda::find_wgmma_variant("bytes_d128_r64_few")>(
    const DecodeProblem&, const Plan&, const DeviceInfo&);
