// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "host_device.h"

namespace pagedecode::cuda {

// Floats of a slot: (ref, sum) [rows], then accumulators [rows][head_dim padded], in whatever order
// the kernel that writes and folds them has (decode_wgmma/fold.cuh: that of its registers).
PD_HOST_DEVICE std::int64_t slot_floats(std::int32_t rows, std::int32_t head_dim) {
  return static_cast<std::int64_t>(rows) * (head_dim + 2);
}

}  // namespace pagedecode::cuda
