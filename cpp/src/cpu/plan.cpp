// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/plan.h"

#include <algorithm>
#include <cstdlib>

#include "cpu/convert.h"
#include "cpu/kernel.h"
#include "masks.h"

namespace pagedecode::cpu {
namespace {

// Items that each thread should find, so that the last to finish is not far behind.
constexpr std::int64_t kItemsPerThread = 4;
// A split shorter than this (tiles x heads) costs more in merging than it saves.
constexpr std::int64_t kMinTilesPerSplit = 32;
// K and V of one tile of all heads of a unit: it, and the next one, should stay in L2.
constexpr std::int64_t kTileBytes = 256 << 10;

// Whether the heads of a token are neighbours in memory (NHD).
bool heads_are_neighbours(const DecodeProblem& p) {
  for (const CacheView* c : {&p.k, &p.v}) {
    const std::int64_t next_token = p.page_size > 1 ? c->token_stride : c->page_stride;
    if (std::abs(c->head_stride) >= std::abs(next_token)) return false;
  }
  return true;
}

// Where the heads of a token are neighbours, a unit takes several of them, so that memory is read
// in runs of kilobytes, each page of it once; a walk of one head alone, 256 bytes in every 2 KB,
// reached 40 % of the bandwidth.
std::int64_t heads_of_unit(const DecodeProblem& p, std::int64_t row_blocks, int threads) {
  const std::int64_t token_bytes = p.head_dim * (bytes_of(p.k.dtype) + bytes_of(p.v.dtype));
  const std::int64_t most = clamp64(kTileBytes / (kTileKeys * token_bytes), 1, kMaxUnitHeads);
  std::int64_t groups = ceil_div64(p.num_kv_heads, most);
  // Splits that are asked for must fit a wave: 128 x 4 heads x 64 rows of D 256 are 34 MB.
  if (p.num_splits > 0) groups = max64(groups, ceil_div64(p.num_kv_heads, 4));
  // Keys that may not be split leave the heads to be shared out.
  if (p.batch_invariant || p.num_splits > 0) {
    while (groups < p.num_kv_heads && groups * row_blocks < 2 * threads) ++groups;
  }
  return ceil_div64(p.num_kv_heads, groups);
}

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

// `fit`: how many partial states of a unit a wave has room for.
std::int64_t splits_of(const DecodeProblem& p, std::int64_t tiles, std::int64_t tiles_an_item,
                       std::int64_t fit) {
  if (p.batch_invariant) return 1;
  const std::int64_t splits =
      p.num_splits > 0 ? p.num_splits : min64(ceil_div64(tiles, tiles_an_item), fit);
  return clamp64(splits, 1, max64(min64(tiles, kMaxSplits), 1));
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
  std::int64_t row_blocks = 0;
  plan.sequences.resize(static_cast<std::size_t>(p.batch) + 1);
  for (std::int64_t b = 0; b < p.batch; ++b) {
    SequencePlan& s = plan.sequences[static_cast<std::size_t>(b)];
    const SequenceView view = load_sequence(p, b);
    s.rows = view.m * p.group;
    s.row_blocks = ceil_div64(s.rows, kTileRows);
    find_keys(p, view, s);
    row_blocks += s.row_blocks;
    plan.tiles += tiles_of(s) * s.row_blocks * p.num_kv_heads;
    if (s.row_blocks > 0) {
      plan.max_block_rows = max64(plan.max_block_rows, ceil_div64(s.rows, s.row_blocks));
    }
  }
  // NOTE: how keys are split may not depend on strides: the same values in another layout give the
  // same bits. So units of neighbouring heads set the splits even where a unit has one head.
  const std::int64_t heads = heads_of_unit(p, row_blocks, threads);
  plan.heads_per_unit = heads;
  const std::int64_t tiles_an_item =
      threads == 1 ? INT64_MAX / 2
                   : max64(kMinTilesPerSplit, ceil_div64(plan.tiles, kItemsPerThread * threads));

  const std::int64_t fit = kWaveBytes / (plan.slot_floats(p.head_dim) * 4);
  if (!heads_are_neighbours(p)) plan.heads_per_unit = 1;
  plan.head_groups = ceil_div64(p.num_kv_heads, plan.heads_per_unit);

  std::int64_t units = 0;
  std::int64_t items = 0;
  std::int64_t slots = 0;
  for (SequencePlan& s : plan.sequences) {
    s.unit_begin = units;
    s.item_begin = items;
    s.slot_begin = slots;
    s.splits = splits_of(p, tiles_of(s), max64(tiles_an_item / heads, 1), fit);
    plan.max_splits = max64(plan.max_splits, s.row_blocks > 0 ? s.splits : 1);
    const std::int64_t own = s.row_blocks * plan.head_groups;
    units += own;
    items += own * s.splits;
    slots += s.splits > 1 ? own * s.splits : 0;
  }
  return plan;
}

Unit unit_at(const DecodeProblem& p, const Plan& plan, std::int64_t sequence, std::int64_t index) {
  const SequencePlan& s = plan.sequences[static_cast<std::size_t>(sequence)];
  const std::int64_t group = index / s.row_blocks;
  const std::int64_t block = index % s.row_blocks;
  // Groups and blocks as even as can be.
  return {sequence, p.num_kv_heads * group / plan.head_groups,
          p.num_kv_heads * (group + 1) / plan.head_groups, s.rows * block / s.row_blocks,
          s.rows * (block + 1) / s.row_blocks};
}

}  // namespace pagedecode::cpu
