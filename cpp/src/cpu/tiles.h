// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Walks the tiles of an item: which rows see which keys, and where each key's K and V lie.
#pragma once

#include <cstdint>

#include "cpu/kernel.h"
#include "cpu/plan.h"
#include "masks.h"
#include "split.h"

namespace pagedecode::cpu {

class TileWalker {
 public:
  // Rows [unit.row_begin, unit.row_end) over `keys`; `zeros` is what unseen keys point to.
  TileWalker(const DecodeProblem& p, const SequenceView& s, const Unit& unit, KeyRange keys,
             const float* zeros);

  // The next tile of which some row sees a key; false at the end.
  bool next(TileTask& task);
  // Moves the task's addresses on to the unit's next head.
  void next_head(TileTask& task) const;
  // Bit j: whether the row sees key first_key + j, of `keys` keys.
  std::uint64_t visible_keys(const RowMask& row, std::int64_t first_key, std::int64_t keys) const;
  const RowMask& row(std::int64_t query_row) const { return rows_[query_row - first_row_]; }

 private:
  void find_runs(TileTask& task) const;
  void find_addresses(TileTask& task) const;

  const DecodeProblem& p_;
  const SequenceView& s_;
  const Unit& unit_;
  const char* zeros_;
  std::int64_t next_key_;
  std::int64_t end_key_;
  std::int64_t first_row_;  // query row of unit.row_begin
  std::int64_t last_row_;   // and of the last
  RowMask rows_[kTileRows];
};

}  // namespace pagedecode::cpu
