// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/decode/launch_variant.cuh"

template cudaError_t
pagedecode::cuda::launch_variant<pagedecode::cuda::find_variant("any_fp16_d256")>(
    const DecodeProblem&, const Plan&, std::size_t, const DeviceInfo&);
