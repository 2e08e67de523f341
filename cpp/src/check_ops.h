// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Checks of what stands beside decode. What slots and lengths hold is the backend's to check: the
// CPU refuses, CUDA skips.
#pragma once

#include <vector>

#include "pagedecode/cache_ops.h"
#include "problem.h"

namespace pagedecode {

AppendProblem check_append(const AppendArgs& args);
SlotsProblem check_slots(const SlotsArgs& args);
// The problem points into `states`.
MergeProblem check_merge(const MergeArgs& args, std::vector<StateView>* states);
MoveProblem check_move(const MoveArgs& args);

}  // namespace pagedecode
