// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cpu/kernel.h"
#include "problem.h"

namespace pagedecode::cpu {

// decode at a given level; backend.h's uses the active one.
void decode_at(const DecodeProblem& p, const Level& level);

}  // namespace pagedecode::cpu
