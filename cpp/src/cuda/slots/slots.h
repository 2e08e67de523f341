// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "problem.h"

namespace pagedecode::cuda {

// For problems of at least one row, on the current device. Throws CudaError.
void launch_slots(const SlotsProblem& p);

}  // namespace pagedecode::cuda
