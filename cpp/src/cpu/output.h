// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cpu/item.h"

namespace pagedecode::cpu {

// A row's softmax over all its keys: sum and out are of exp(logit - max), not yet normalised.
struct RowResult {
  float max;
  float sum;
  const float* out;  // [D]
};

// Closes the softmax (sink, scales) and writes the row's out and LSE.
void write_row(const Call& call, const SequenceView& s, std::int64_t row, std::int64_t kv_head,
               std::int64_t query_head, const RowResult& result);

}  // namespace pagedecode::cpu
