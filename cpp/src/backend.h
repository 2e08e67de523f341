// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// What a backend provides. cpu:: is always built; cuda:: is, or no_cuda.cpp stands in for it.
#pragma once

#include <cstddef>

#include "pagedecode/backends.h"
#include "pagedecode/decode.h"
#include "problem.h"

namespace pagedecode {

namespace cpu {
// Contents of lengths, offsets and live page ids; throws InvalidArgument.
void check_contents(const DecodeProblem& p);
void decode(const DecodeProblem& p);
std::size_t workspace_size(const DecodeProblem& p);
Explanation explain(const DecodeProblem& p);
void append(const AppendProblem& p);
void slots(const SlotsProblem& p);
void merge_states(const MergeProblem& p);
void move(const MoveProblem& p);
BackendStatus status();
}  // namespace cpu

namespace cuda {
// What this backend cannot do throws Unsupported; shapes only.
void check_supported(const DecodeProblem& p);
// Synchronises; throws InvalidArgument.
void check_contents(const DecodeProblem& p);
void decode(const DecodeProblem& p);
std::size_t workspace_size(const DecodeProblem& p);
Explanation explain(const DecodeProblem& p);
void append(const AppendProblem& p);
void slots(const SlotsProblem& p);
void merge_states(const MergeProblem& p);
void move(const MoveProblem& p);
BackendStatus status();
}  // namespace cuda

}  // namespace pagedecode
