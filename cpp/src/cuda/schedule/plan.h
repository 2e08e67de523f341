// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// How the work of a call is cut. An item is (sequence, row tile, KV head): all keys that the rows
// of one tile see. Its keys are counted in units; the units of all items of one head, in order, are
// one line, cut into `chunks` contiguous ranges of equal length. Block x walks chunk x / heads of
// head x % heads, so that neighbouring blocks read neighbouring heads of the same tokens (walking
// heads apart cost a third of the bandwidth on an H200: 3.0 against 4.6 TB/s, 1-byte NHD).
//
//   kBalanced    a unit is one tile of keys; a chunk may begin and end inside an item, whose parts
//                then merge. Which keys a part holds depends on the other sequences.
//   kWholeItems  an item is cut into splits by the caller's rule, but one block walks them all, and
//                folds them in order. For problems with items enough.
//   kSplitItems  a unit is one split; the last block to finish an item folds its splits in order.
//                For problems of few items. Same bits as kWholeItems.
//
// Everything here is host + device arithmetic on the lengths, tested without a GPU.
#pragma once

#include <cstdint>

#include "masks.h"
#include "problem.h"
#include "sequence.h"
#include "split.h"

namespace pagedecode::cuda {

// Arrival counters: one a block, then two a block for groups of splits (merge/merge.cuh).
inline constexpr int kMaxBlocks = 4096;
inline constexpr int kCounters = 3 * kMaxBlocks;

enum class Partition : std::uint8_t { kBalanced, kWholeItems, kSplitItems };

inline constexpr int kWarps = 4;  // that consume, of a block; one more loads
inline constexpr int kWorkBytes = 48;
inline constexpr int kHeaderBytes = 32;
inline constexpr int kStageBarriers = 5;

// Where things lie in a block's dynamic shared memory, after the ring of stages.
struct SharedPlan {
  std::int32_t q;          // Q, or the epilogue's exchange
  std::int32_t work;       // ring of Work [stages + 1]
  std::int32_t header;     // StageHeader [stages]
  std::int32_t barriers;   // [stages][kStageBarriers]
  std::int32_t row_scale;  // float [rows], kBytes
  std::int32_t total;
};

// What the host decided, from shapes and options only. A kernel takes it by value.
struct Plan {
  std::int32_t rows_log2 = 4;      // flattened query rows (m x group) of a tile
  std::int32_t team_log2 = 0;      // warps that share the keys of a tile, each with rows of its own
  std::int32_t stages = 3;         // of the load pipeline
  std::int32_t exchange_log2 = 5;  // columns of accumulators that the epilogue exchanges at a time
  std::int32_t tile_log2 = 6;      // keys of one step of a block
  std::int32_t unit_log2 = 6;      // keys of a unit: a tile, or more where units would pass 2^31
  std::int32_t chunks = 1;         // ranges that the units of a head are cut into
  std::int32_t heads = 1;          // KV heads side by side: blocks = chunks * heads
  std::uint32_t group_magic = 0;   // ceil(2^32 / group): f / group for f below 2^25; 0: group is 1
  Partition partition = Partition::kBalanced;
  std::int32_t fixed_keys = 0;  // kWholeItems, kSplitItems: keys of a split, or 0: num_splits
  std::int32_t splits_max = 1;  // kWholeItems, kSplitItems: most splits of one item
  std::int32_t row_tiles_max = 1;
  std::int32_t one_level_splits = 8;  // kBalanced: more than these fold in two levels
  std::int64_t slot_floats = 0;       // floats of one partial state
  std::uint32_t* counters = nullptr;  // zero between calls
  float* partials = nullptr;          // [slots, slot_floats]
  // kBalanced, or null: slots of splits that all their blocks merge (decode_wgmma/gather.cuh); zero
  // between calls.
  float* exchange = nullptr;
  SharedPlan shared{};

  PD_HOST_DEVICE std::int32_t rows() const { return 1 << rows_log2; }
  PD_HOST_DEVICE std::int32_t team_warps() const { return 1 << team_log2; }
  PD_HOST_DEVICE std::int32_t tile_keys() const { return 1 << tile_log2; }
  // Row i of flattened row f (i * group + j).
  PD_HOST_DEVICE std::int32_t row_of(std::int32_t f) const {
    if (group_magic == 0) return f;
    return static_cast<std::int32_t>((static_cast<std::uint64_t>(f) * group_magic) >> 32);
  }
};

// One sequence, as the schedule sees it. 32-bit throughout: a launch meets this code cold, and a
// cold instruction costs about 9 ns.
struct SequenceShape {
  std::int64_t first_page;  // see SequenceView
  std::int32_t first_row;
  std::int32_t m;
  std::int32_t n;
  std::int32_t begin;      // first key that any of its rows may see, at most n
  std::int32_t row_tiles;  // 0 if it has no rows
  std::int32_t units;      // of one item; at least 1, so that rows without keys are written too
};

// First key that any row of a sequence may see.
PD_HOST_DEVICE std::int64_t first_visible_key(const DecodeProblem& p, const SequenceView& s) {
  if (p.window_left < 0 || s.m == 0) return 0;
  if (!p.positions) return row_begin(s, load_row(p, s, 0));
  std::int64_t first = s.n;
  for (std::int64_t i = 0; i < s.m; ++i) first = min64(first, row_begin(s, load_row(p, s, i)));
  return first;
}

PD_HOST_DEVICE std::int32_t item_splits(const DecodeProblem& p, const Plan& plan, std::int64_t n) {
  if (plan.fixed_keys == 0) return static_cast<std::int32_t>(min64(p.num_splits, plan.splits_max));
  return static_cast<std::int32_t>(max64(ceil_div64(n, plan.fixed_keys), 1));
}

// Keys of split `i` of an item; its begin is a multiple of the tile, or the first visible key.
PD_HOST_DEVICE KeyRange split_keys(const Plan& plan, std::int64_t begin, std::int64_t n,
                                   std::int32_t splits, std::int32_t i) {
  if (plan.fixed_keys == 0) return balanced_split(begin, n, plan.tile_keys(), splits, i);
  const KeyRange r = fixed_split(n, plan.fixed_keys, i);
  return {max64(r.begin, begin), max64(r.end, begin)};
}

PD_HOST_DEVICE SequenceShape load_shape(const DecodeProblem& p, const Plan& plan, std::int32_t b) {
  const SequenceView s = load_sequence(p, b);
  SequenceShape x;
  x.first_page = s.first_page;
  x.first_row = static_cast<std::int32_t>(s.first_row);
  x.m = static_cast<std::int32_t>(s.m);
  x.n = static_cast<std::int32_t>(s.n);
  x.begin = static_cast<std::int32_t>(min64(first_visible_key(p, s), s.n));
  x.row_tiles = (x.m * p.group + plan.rows() - 1) >> plan.rows_log2;
  if (plan.partition == Partition::kSplitItems) {
    x.units = item_splits(p, plan, x.n);
  } else {
    const std::int32_t last = (x.n >> plan.unit_log2) + ((x.n & ((1 << plan.unit_log2) - 1)) != 0);
    x.units = last - (x.begin >> plan.unit_log2);
    if (x.units < 1) x.units = 1;
  }
  return x;
}

// Chunks of a head's line: `chunks`, or up to 1/16 fewer, whose borders fall between the `items`
// where sequences are alike, so that fewer items are split and merged (e4m3, 32 rows, 64 x
// 1024: 48.6 us with 32 chunks, 55.8 with 33).
inline std::int32_t even_chunks(std::int32_t chunks, std::int64_t items) {
  if (items < 1) return chunks;
  const std::int64_t of_a_chunk = ceil_div64(items, chunks);
  const std::int64_t even =
      items <= chunks ? chunks / items * items : ceil_div64(items, of_a_chunk);
  return even * 16 >= std::int64_t{chunks} * 15 ? static_cast<std::int32_t>(even) : chunks;
}

// The line cut into chunks: the first `longer` ones have `length` + 1 units, the others `length`;
// chunks past the last unit are empty.
struct ChunkLine {
  std::int32_t total;
  std::int32_t length;
  std::int32_t longer;

  ChunkLine() = default;
  PD_HOST_DEVICE ChunkLine(std::int32_t total_units, std::int32_t chunks) : total(total_units) {
    length = static_cast<std::int32_t>(static_cast<std::uint32_t>(total) /
                                       static_cast<std::uint32_t>(chunks));
    longer = total - length * chunks;
  }
  // First unit of a chunk.
  PD_HOST_DEVICE std::int32_t begin(std::int32_t chunk) const {
    return chunk * length + (chunk < longer ? chunk : longer);
  }
  // The chunk that holds a unit.
  PD_HOST_DEVICE std::int32_t chunk_of(std::int32_t unit) const {
    const std::int32_t edge = longer * (length + 1);
    if (unit < edge) return unit / (length + 1);
    return longer + (unit - edge) / length;
  }
};

}  // namespace pagedecode::cuda
