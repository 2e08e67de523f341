// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Decode attention on a GPU: from a checked problem to one kernel launch. Nothing here reads
// device memory or synchronises; everything depends on shapes, options and the device only.
#pragma once

#include <cstddef>

#include "cuda/device.h"
#include "pagedecode/decode.h"
#include "problem.h"

namespace pagedecode::cuda {

// Throws Unsupported with one sentence for what no variant can do on this device.
void check_decode_supported(const DecodeProblem& p, const DeviceInfo& device);

// Bytes of scratch. Its first decode_zeroed_bytes (after alignment to kWorkspaceAlignment) are zero
// before the first call, and left zero by each: kCounterBytes of arrival counters for every shape,
// and, on a device with wgmma, the exchange of splits (decode_wgmma/gather.cuh).
inline constexpr std::size_t kCounterBytes = 64 * 1024;
inline constexpr std::size_t kWorkspaceAlignment = 256;
std::size_t decode_workspace_bytes(const DecodeProblem& p, const DeviceInfo& device);
std::size_t decode_zeroed_bytes(const DeviceInfo& device);

// Launches on p.stream of the current device, which is `device`. Throws Unsupported,
// InvalidArgument (workspace too small) or CudaError.
void launch_decode(const DecodeProblem& p, void* workspace, std::size_t bytes,
                   const DeviceInfo& device);

Explanation explain_decode(const DecodeProblem& p, const DeviceInfo& device);

}  // namespace pagedecode::cuda
