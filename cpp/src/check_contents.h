// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Checks of what the small arrays hold. All pointers must be readable by the host: the CPU backend
// calls these on every decode, the CUDA backend's check on copies of the arrays.
#pragma once

#include <cstdint>

#include "problem.h"

namespace pagedecode {

// cu_seqlens_q starts at 0, never falls, ends within q; m <= max_q. Returns the largest m.
std::int64_t check_query_offsets(const DecodeProblem& p);
// seq_lens within the pages that a sequence has, CSR offsets, ids of the pages that hold keys.
void check_lengths_and_pages(const DecodeProblem& p);

// Both.
void check_host_contents(const DecodeProblem& p);

// Of slots(): the page table's own offsets, and every page that a row's slot needs.
void check_offsets(const char* name, const IndexArray& offsets, std::int64_t batch,
                   std::int64_t limit, const char* limit_name);

}  // namespace pagedecode
