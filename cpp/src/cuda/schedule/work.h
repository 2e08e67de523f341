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
  std::int32_t row0;   // first flattened row (row i, head j of the group: i * group + j)
  std::int32_t begin;  // keys [begin, end); may be empty
  std::int32_t end;
  std::int32_t split;  // of `splits`; 1: the result is final
  std::int32_t splits;
  std::int32_t origin;  // names the item among those that are split: see ItemSlots, counter_of
  std::int32_t head;    // KV head
  std::int32_t unused;
};
static_assert(sizeof(Work) == 48);

PD_HOST_DEVICE SequenceView view_of(const Work& w) { return {w.seq, w.first_row, w.m, w.n, 0}; }

// Where the partial states of an item's splits lie.
//   kBalanced: origin is the block of split 0, where the item is the last of the chunk; later
//              blocks hold it as the first of theirs. Two slots a block: first item, last item.
//   kSplitItems: origin is the item's index among all (sequence, row tile).
//   kWholeItems: two slots a block, whose index origin is: 0 the running fold (split 0 begins it),
//              1 the split at hand.
struct ItemSlots {
  std::int32_t first;  // slot of split 0
  std::int32_t rest;   // slot of split i > 0: rest + i * apart
  std::int32_t apart;

  PD_HOST_DEVICE ItemSlots(const DecodeProblem& p, const Plan& plan, std::int32_t origin,
                           std::int32_t head) {
    first = rest = 2 * origin;
    if (plan.partition == Partition::kBalanced) {
      ++first;
      apart = 2 * plan.heads;
    } else if (plan.partition == Partition::kWholeItems) {
      ++rest;
      apart = 0;
    } else {
      first = rest = origin * plan.splits_max * p.num_kv_heads + head;
      apart = p.num_kv_heads;
    }
  }
  PD_HOST_DEVICE std::int32_t operator[](std::int32_t split) const {
    return split == 0 ? first : rest + split * apart;
  }
};

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
  return 2 * static_cast<std::int64_t>(plan.chunks) * plan.heads;
}

// Where a chunk begins: the sequence that holds its first unit, and that sequence's first unit.
struct ChunkStart {
  ChunkLine line;
  std::int32_t seq;
  std::int32_t seq_begin;  // on the line
  SequenceShape shape;     // of the sequence; no row tiles: not known
};

class WorkIterator {
 public:
  PD_HOST_DEVICE WorkIterator(const DecodeProblem& p, const Plan& plan, const ChunkStart& start,
                              std::int32_t chunk, std::int32_t head_lane)
      : p_(p), plan_(plan), line_(start.line), chunk_(chunk), head_lane_(head_lane) {
    unit_ = line_.begin(chunk);
    stop_ = line_.begin(chunk + 1);
    shape_ = start.shape;
    seq_ = start.shape.row_tiles > 0 ? start.seq : start.seq - 1;
    base_ = start.seq_begin;
    fresh_ = true;
  }

  // The next work, if the chunk has one. `shape` is load_shape, or a device function that calls it.
  template <class Shape>
  PD_HOST_DEVICE bool next(Work& w, Shape&& shape) {
    if (!next_keys(w, shape)) return false;
    find_splits(w);
    return true;
  }

  // The same without split, splits and origin, which find_splits() adds: divisions that a loader
  // has time for once it has asked for page ids.
  template <class Shape>
  PD_HOST_DEVICE bool next_keys(Work& w, Shape&& shape) {
    const bool whole = plan_.partition == Partition::kWholeItems;
    while (true) {
      if (unit_ >= stop_ && !(whole && split_ > 0)) return false;
      while (row_tile_ >= shape_.row_tiles) {
        shape_ = shape(++seq_);
        row_tile_ = 0;
      }
      if (!fresh_) break;
      fresh_ = false;
      if (shape_.row_tiles > 1) row_tile_ = (unit_ - base_) / shape_.units;
      base_ += row_tile_ * shape_.units;
      if (!whole || base_ == unit_) break;
      close_item();  // whole items belong to the chunk that their first unit is in
    }
    w.seq = seq_;
    w.first_row = shape_.first_row;
    w.m = shape_.m;
    w.n = shape_.n;
    w.row0 = row_tile_ << plan_.rows_log2;
    w.split = 0;
    w.splits = 1;
    w.origin = chunk_ * plan_.heads + head_lane_;
    first_page_ = shape_.first_page;
    if (plan_.partition == Partition::kBalanced) {
      next_units(w);
    } else {
      next_split(w, whole);
    }
    return true;
  }

  PD_HOST_DEVICE void find_splits(Work& w) const {
    if (plan_.partition != Partition::kBalanced || !is_split_) return;
    const std::int32_t c0 = is_first_ ? chunk_ : line_.chunk_of(item_begin_);
    w.split = chunk_ - c0;
    w.splits = line_.chunk_of(item_end_ - 1) - c0 + 1;
    w.origin = c0 * plan_.heads + head_lane_;
  }

  // Where the page ids of the work that next() gave last begin.
  PD_HOST_DEVICE std::int64_t first_page() const { return first_page_; }

 private:
  PD_HOST_DEVICE void close_item() {
    base_ += shape_.units;
    unit_ = unit_ < base_ ? base_ : unit_;
    ++row_tile_;
    split_ = 0;
  }

  PD_HOST_DEVICE void next_units(Work& w) {
    const std::int32_t item_end = base_ + shape_.units;
    const std::int32_t to = item_end < stop_ ? item_end : stop_;
    const std::int32_t first = (shape_.begin >> plan_.unit_log2) - base_;
    w.begin = (first + unit_) << plan_.unit_log2;
    if (w.begin < shape_.begin) w.begin = shape_.begin;
    // The last unit may end past 2^31.
    w.end = to == item_end ? w.n : (first + to) << plan_.unit_log2;
    item_begin_ = base_;
    item_end_ = item_end;
    is_split_ = unit_ != base_ || to != item_end;
    is_first_ = unit_ == base_;
    unit_ = to;
    if (to == item_end) close_item();
  }

  PD_HOST_DEVICE void next_split(Work& w, bool whole) {
    w.splits = item_splits(p_, plan_, w.n);
    w.split = whole ? split_ : unit_ - base_;
    const KeyRange r = split_keys(plan_, shape_.begin, w.n, w.splits, w.split);
    w.begin = static_cast<std::int32_t>(r.begin);
    w.end = static_cast<std::int32_t>(r.end);
    if (whole) {
      if (++split_ == w.splits) close_item();
    } else {
      w.origin = seq_ * plan_.row_tiles_max + row_tile_;
      if (++unit_ == base_ + shape_.units) close_item();
    }
  }

  const DecodeProblem& p_;
  const Plan& plan_;
  ChunkLine line_;
  std::int32_t chunk_;
  std::int32_t head_lane_;
  std::int32_t unit_;
  std::int32_t stop_;
  std::int32_t seq_;
  std::int32_t base_;  // first unit of the current item
  std::int32_t row_tile_ = 0;
  std::int32_t split_ = 0;  // kWholeItems
  bool fresh_;
  // Of the work that was given last, kBalanced.
  std::int32_t item_begin_ = 0;
  std::int32_t item_end_ = 0;
  bool is_split_ = false;
  bool is_first_ = false;  // it begins its item
  SequenceShape shape_{};
  std::int64_t first_page_ = 0;
};

}  // namespace pagedecode::cuda
