// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "problem.h"

namespace pagedecode::cuda {

// For problems of at least one pair, on the current device. Throws CudaError.
void launch_move(const MoveProblem& p);

}  // namespace pagedecode::cuda
