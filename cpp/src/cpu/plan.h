// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Which pieces a call is cut into. A unit is (sequence, a few KV heads, a block of up to kTileRows
// of each head's m x group rows): what shares one pass over K and V. An item is one split of a
// unit's keys: what one thread does at a time. Units of more than one split leave partial states in
// slots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sequence.h"

namespace pagedecode::cpu {

// Partial states of one wave of units: what keeps a call's memory bounded.
inline constexpr std::int64_t kWaveBytes = std::int64_t{32} << 20;
// Splits of one sequence, however many are asked for.
inline constexpr std::int64_t kMaxSplits = 128;

struct SequencePlan {
  std::int64_t unit_begin = 0;  // units, items and slots of the sequences before this one
  std::int64_t item_begin = 0;
  std::int64_t slot_begin = 0;
  std::int64_t splits = 1;
  std::int64_t row_blocks = 0;
  std::int64_t rows = 0;       // m x group
  std::int64_t key_begin = 0;  // no row sees a key outside [key_begin, key_end)
  std::int64_t key_end = 0;
};

struct Unit {
  std::int64_t sequence;
  std::int64_t head_begin;  // KV heads
  std::int64_t head_end;
  std::int64_t row_begin;  // of m x group of each head
  std::int64_t row_end;
};

struct Plan {
  std::vector<SequencePlan> sequences;  // B + 1: the last holds the totals
  std::int64_t heads_per_unit = 1;
  std::int64_t head_groups = 1;  // units of one block of rows
  std::int64_t max_block_rows = 0;
  std::int64_t max_splits = 1;
  std::int64_t tiles = 0;  // of all units and heads: what there is to do

  std::int64_t units() const { return sequences.back().unit_begin; }
  // Of one split's partial state: (heads, rows, 2 + D).
  std::int64_t slot_floats(std::int64_t head_dim) const {
    return heads_per_unit * max64(max_block_rows, 1) * (2 + head_dim);
  }
  // The sequence whose units include `unit`.
  std::int64_t sequence_of_unit(std::int64_t unit) const;
  std::int64_t sequence_of_item(std::int64_t item) const;
};

Plan make_plan(const DecodeProblem& p, int threads);

Unit unit_at(const DecodeProblem& p, const Plan& plan, std::int64_t sequence, std::int64_t index);

}  // namespace pagedecode::cpu
