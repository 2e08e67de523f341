// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The walk of one block over its chunk: `next(work)` gives a range of keys of one item at a time.
// Where partial states lie and which counter an item has is here too: who writes and who reads them
// agree by these functions alone.
#pragma once

#include <cstdint>

#include "cuda/schedule/plan.h"

namespace pagedecode::cuda {

// A range of keys of one item. 48 bytes: blocks keep a ring of them in shared memory.
struct Work {
  std::int32_t seq;
  std::int32_t first_row;  // of the sequence, in total_q
  std::int32_t m;
  std::int32_t n;
  std::int32_t row0;    // first flattened row (row i, head j of the group: i * group + j)
  std::int32_t begin;   // keys [begin, end); may be empty
  std::int32_t end;
  std::int32_t split;   // of `splits`; 1: the result is final
  std::int32_t splits;
  std::int32_t origin;  // names the item among those that are split: see slot_of, counter_of
  std::int32_t unused[2];
};
static_assert(sizeof(Work) == 48);

PD_HOST_DEVICE SequenceView view_of(const Work& w) {
  return {w.seq, w.first_row, w.m, w.n, 0};
}

// The partial state of a split.
//   kBalanced: origin is the block of split 0, where the item is the last of the chunk; later
//              blocks hold it as the first of theirs. Two slots a block: first item, last item.
//   kSplitItems: origin is the item's index among all (sequence, row tile).
//   kWholeItems: one slot a block, the running fold; origin is the block.
PD_HOST_DEVICE std::int64_t slot_of(const DecodeProblem& p, const Plan& plan, std::int32_t origin,
                                    std::int32_t head, std::int32_t split) {
  if (plan.partition == Partition::kWholeItems) return origin;
  if (plan.partition == Partition::kSplitItems) {
    return (static_cast<std::int64_t>(origin) * plan.splits_max + split) * p.num_kv_heads + head;
  }
  return split == 0 ? 2 * static_cast<std::int64_t>(origin) + 1
                    : 2 * (static_cast<std::int64_t>(origin) + split * plan.heads);
}

// The arrival counter of a split item: below the number of blocks in every partition.
PD_HOST_DEVICE std::int32_t counter_of(const DecodeProblem& p, const Plan& plan,
                                       std::int32_t origin, std::int32_t head) {
  return plan.partition == Partition::kSplitItems ? origin * p.num_kv_heads + head : origin;
}

// Slots that a plan needs.
PD_HOST_DEVICE std::int64_t num_slots(const DecodeProblem& p, const Plan& plan) {
  if (plan.partition == Partition::kSplitItems) {
    return p.batch * plan.row_tiles_max * plan.splits_max * p.num_kv_heads;
  }
  const std::int64_t blocks = static_cast<std::int64_t>(plan.chunks) * plan.heads;
  return plan.partition == Partition::kWholeItems ? blocks : 2 * blocks;
}

// Where a chunk begins: the sequence that holds its first unit, and that sequence's first unit.
struct ChunkStart {
  std::int64_t total;      // units of the line
  std::int64_t seq;
  std::int64_t seq_begin;  // on the line
};

class WorkIterator {
 public:
  PD_HOST_DEVICE WorkIterator(const DecodeProblem& p, const Plan& plan, const ChunkStart& start,
                              std::int32_t chunk, std::int32_t head_lane)
      : p_(p), plan_(plan), total_(start.total), chunk_(chunk), head_lane_(head_lane) {
    unit_ = chunk_begin(plan, total_, chunk);
    stop_ = chunk_begin(plan, total_, chunk + 1);
    if (unit_ >= stop_) return;
    seq_ = start.seq;
    shape_ = load_shape(p_, plan_, seq_);
    const auto tile = (unit_ - start.seq_begin) / shape_.units;
    row_tile_ = static_cast<std::int32_t>(tile);
    base_ = start.seq_begin + tile * shape_.units;
    // Whole items belong to the chunk that their first unit is in.
    if (plan_.partition == Partition::kWholeItems && base_ < unit_) close_item();
  }

  PD_HOST_DEVICE bool next(Work& w) {
    const bool whole = plan_.partition == Partition::kWholeItems;
    if ((whole ? base_ : unit_) >= stop_) return false;
    while (row_tile_ >= shape_.row_tiles) {
      shape_ = load_shape(p_, plan_, ++seq_);
      row_tile_ = 0;
    }
    const SequenceView& s = shape_.s;
    w.seq = static_cast<std::int32_t>(s.index);
    w.first_row = static_cast<std::int32_t>(s.first_row);
    w.m = static_cast<std::int32_t>(s.m);
    w.n = static_cast<std::int32_t>(s.n);
    w.row0 = row_tile_ * plan_.rows;
    if (plan_.partition == Partition::kBalanced) {
      next_tiles(w);
    } else {
      next_split(w, whole);
    }
    return true;
  }

  // Sequence and page list of the work that next() gave last.
  PD_HOST_DEVICE std::int64_t first_page() const { return first_page_; }

 private:
  PD_HOST_DEVICE void close_item() {
    base_ += shape_.units;
    ++row_tile_;
    split_ = 0;
  }

  PD_HOST_DEVICE void next_tiles(Work& w) {
    const std::int64_t item_end = base_ + shape_.units;
    const std::int64_t to = min64(item_end, stop_);
    const std::int64_t tile = plan_.tile_keys;
    const std::int64_t first = min64(shape_.begin, w.n) / tile - base_;
    w.begin = static_cast<std::int32_t>(max64((first + unit_) * tile, shape_.begin));
    w.end = static_cast<std::int32_t>(min64((first + to) * tile, w.n));
    w.split = 0;
    w.splits = 1;
    w.origin = 0;
    if (unit_ != base_ || to != item_end) {
      const std::int32_t c0 = chunk_of(plan_, total_, base_);
      w.split = chunk_ - c0;
      w.splits = chunk_of(plan_, total_, item_end - 1) - c0 + 1;
      w.origin = c0 * plan_.heads + head_lane_;
    }
    first_page_ = shape_.s.first_page;
    unit_ = to;
    if (to == item_end) close_item();
  }

  PD_HOST_DEVICE void next_split(Work& w, bool whole) {
    w.splits = item_splits(p_, plan_, w.n);
    w.split = whole ? split_ : static_cast<std::int32_t>(unit_ - base_);
    const KeyRange r = split_keys(plan_, min64(shape_.begin, w.n), w.n, w.splits, w.split);
    w.begin = static_cast<std::int32_t>(r.begin);
    w.end = static_cast<std::int32_t>(r.end);
    w.origin = whole ? chunk_ * plan_.heads + head_lane_
                     : static_cast<std::int32_t>(seq_ * plan_.row_tiles_max + row_tile_);
    first_page_ = shape_.s.first_page;
    if (whole) {
      if (++split_ == w.splits) close_item();
    } else if (++unit_ == base_ + shape_.units) {
      close_item();
    }
  }

  const DecodeProblem& p_;
  const Plan& plan_;
  std::int64_t total_;
  std::int32_t chunk_;
  std::int32_t head_lane_;
  std::int64_t unit_ = 0;
  std::int64_t stop_ = 0;
  std::int64_t seq_ = 0;
  std::int64_t base_ = 0;  // first unit of the current item
  std::int32_t row_tile_ = 0;
  std::int32_t split_ = 0;  // kWholeItems
  SequenceShape shape_{};
  std::int64_t first_page_ = 0;
};

}  // namespace pagedecode::cuda
