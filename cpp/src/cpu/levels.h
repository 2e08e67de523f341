// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "cpu/kernel.h"

namespace pagedecode::cpu {

// The levels of this build that this machine has, lowest first.
std::vector<const Level*> levels_that_run();
// The last of those, unless PAGEDECODE_ISA names another.
// Throws InvalidArgument where PAGEDECODE_ISA names none, or one that this machine lacks.
const Level& active_level();

}  // namespace pagedecode::cpu
