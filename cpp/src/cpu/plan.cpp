// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/plan.h"

#include <algorithm>

#include "cpu/kernel.h"
#include "masks.h"

namespace pagedecode::cpu {
namespace {

// Splits of one sequence, however many are asked for: bounds the partial states of a unit.
constexpr std::int64_t kMaxSplits = 128;
// Items that each thread should find, so that the last to finish is not far behind.
constexpr std::int64_t kItemsPerThread = 4;
// A split shorter than this costs more in merging than it saves.
constexpr std::int64_t kMinTilesPerSplit = 8;

// The keys that some row of a sequence may see.
void find_keys(const DecodeProblem& p, const SequenceView& s, SequencePlan& plan) {
  plan.key_begin = 0;
  plan.key_end = s.m > 0 ? s.n : 0;
  if (s.m == 0 || p.window_left < 0) return;
  std::int64_t begin = s.n;
  for (std::int64_t i = 0; i < s.m; ++i) begin = min64(begin, row_begin(s, load_row(p, s, i)));
  plan.key_begin = begin;
}

std::int64_t tiles_of(const SequencePlan& s) {
  return ceil_div64(s.key_end, kTileKeys) - s.key_begin / kTileKeys;
}

std::int64_t splits_of(const DecodeProblem& p, std::int64_t tiles, std::int64_t tiles_an_item) {
  if (p.batch_invariant) return 1;
  std::int64_t splits = p.num_splits > 0 ? p.num_splits : ceil_div64(tiles, tiles_an_item);
  splits = min64(splits, min64(tiles, kMaxSplits));
  return max64(splits, 1);
}

}  // namespace

std::int64_t Plan::sequence_of_unit(std::int64_t unit) const {
  const auto at =
      std::upper_bound(sequences.begin(), sequences.end(), unit,
                       [](std::int64_t x, const SequencePlan& s) { return x < s.unit_begin; });
  return at - sequences.begin() - 1;
}

std::int64_t Plan::sequence_of_item(std::int64_t item) const {
  const auto at =
      std::upper_bound(sequences.begin(), sequences.end(), item,
                       [](std::int64_t x, const SequencePlan& s) { return x < s.item_begin; });
  return at - sequences.begin() - 1;
}

Plan make_plan(const DecodeProblem& p, int threads) {
  Plan plan;
  plan.sequences.resize(static_cast<std::size_t>(p.batch) + 1);
  for (std::int64_t b = 0; b < p.batch; ++b) {
    SequencePlan& s = plan.sequences[static_cast<std::size_t>(b)];
    const SequenceView view = load_sequence(p, b);
    s.rows = view.m * p.group;
    s.row_blocks = ceil_div64(s.rows, kTileRows);
    find_keys(p, view, s);
    plan.tiles += tiles_of(s) * s.row_blocks * p.num_kv_heads;
    if (s.row_blocks > 0) {
      plan.max_block_rows = max64(plan.max_block_rows, ceil_div64(s.rows, s.row_blocks));
    }
  }
  const std::int64_t tiles_an_item =
      threads == 1 ? INT64_MAX / 2
                   : max64(kMinTilesPerSplit, ceil_div64(plan.tiles, kItemsPerThread * threads));

  std::int64_t units = 0;
  std::int64_t items = 0;
  std::int64_t slots = 0;
  for (SequencePlan& s : plan.sequences) {
    s.unit_begin = units;
    s.item_begin = items;
    s.slot_begin = slots;
    s.splits = splits_of(p, tiles_of(s), tiles_an_item);
    plan.max_splits = max64(plan.max_splits, s.row_blocks > 0 ? s.splits : 1);
    units += s.row_blocks * p.num_kv_heads;
    items += s.row_blocks * p.num_kv_heads * s.splits;
    slots += s.splits > 1 ? s.row_blocks * p.num_kv_heads * s.splits : 0;
  }
  return plan;
}

Unit unit_at(const DecodeProblem& p, const Plan& plan, std::int64_t sequence, std::int64_t index) {
  const SequencePlan& s = plan.sequences[static_cast<std::size_t>(sequence)];
  const std::int64_t block = index / p.num_kv_heads;
  // Blocks as even as can be.
  return {sequence, index % p.num_kv_heads, s.rows * block / s.row_blocks,
          s.rows * (block + 1) / s.row_blocks};
}

}  // namespace pagedecode::cpu
