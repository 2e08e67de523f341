// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Stands in for the CUDA backend in a build with PAGEDECODE_CUDA=OFF.
#include "backend.h"
#include "pagedecode/error.h"

namespace pagedecode::cuda {
namespace {

constexpr char kWhy[] =
    "built without CUDA: build with PAGEDECODE_CUDA=ON and nvcc 12.5 or newer to have it";

[[noreturn]] void refuse(const char* argument) {
  throw Unsupported(std::string(argument) +
                    ": got an array on a CUDA device, want one on the CPU: this pagedecode was " +
                    kWhy);
}

}  // namespace

BackendStatus status() {
  BackendStatus s;
  s.why = kWhy;
  return s;
}

void check_supported(const DecodeProblem&) { refuse("q"); }
void check_contents(const DecodeProblem&) { refuse("q"); }
void decode(const DecodeProblem&) { refuse("q"); }
std::size_t workspace_size(const DecodeProblem&) { refuse("q"); }
Explanation explain(const DecodeProblem&) { refuse("q"); }
void append(const AppendProblem&) { refuse("k"); }
void slots(const SlotsProblem&) { refuse("seq_lens"); }
void merge_states(const MergeProblem&) { refuse("outs"); }
void move(const MoveProblem&) { refuse("k_cache"); }

}  // namespace pagedecode::cuda
