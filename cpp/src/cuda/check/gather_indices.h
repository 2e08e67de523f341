// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "problem.h"

namespace pagedecode::cuda {

// out[r * cols + c] = from[r * row_stride + c * from.stride], on the current device.
void launch_gather_indices(const IndexArray& from, std::int64_t rows, std::int64_t row_stride,
                           std::int64_t cols, std::int64_t* out, void* stream);

}  // namespace pagedecode::cuda
