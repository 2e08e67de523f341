// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/tiles.h"

#include "cpu/convert.h"

namespace pagedecode::cpu {
namespace {

// Bits lo .. hi - 1; none where hi <= lo.
std::uint64_t bit_range(std::int64_t lo, std::int64_t hi) {
  lo = max64(lo, 0);
  hi = min64(hi, 64);
  if (hi <= lo) return 0;
  const std::uint64_t below_hi = hi == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << hi) - 1;
  return below_hi & ~((std::uint64_t{1} << lo) - 1);
}

}  // namespace

TileWalker::TileWalker(const DecodeProblem& p, const SequenceView& s, const Unit& unit,
                       KeyRange keys, const float* zeros)
    : p_(p),
      s_(s),
      unit_(unit),
      zeros_(reinterpret_cast<const char*>(zeros)),
      next_key_(0),
      end_key_(0),
      first_row_(unit.row_begin / p.group),
      last_row_((unit.row_end - 1) / p.group) {
  std::int64_t begin = keys.end;
  std::int64_t end = keys.begin;
  for (std::int64_t i = first_row_; i <= last_row_; ++i) {
    RowMask& r = rows_[i - first_row_] = load_row(p, s, i);
    begin = min64(begin, row_begin(s, r));
    end = max64(end, row_end(p, s, r));
  }
  next_key_ = max64(begin, keys.begin) / kTileKeys * kTileKeys;
  end_key_ = min64(end, keys.end);
}

std::uint64_t TileWalker::visible_keys(const RowMask& row, std::int64_t first_key,
                                       std::int64_t keys) const {
  const std::int64_t draft = s_.n - s_.m;  // first draft key
  const std::int64_t end = first_key + keys;
  if (p_.draft_mask.kind == MaskKind::kNone && !p_.positions) {
    // Positions are indices, and what a row sees is one range.
    const std::int64_t begin = row.min_position;
    return bit_range(begin <= first_key ? 0
                     : begin >= end     ? keys
                                        : begin - first_key,
                     min64(end, row_end(p_, s_, row)) - first_key);
  }
  std::uint64_t bits = bit_range(row_begin(s_, row) - first_key, min64(draft, end) - first_key);
  for (std::int64_t key = max64(draft, first_key); key < end; ++key) {
    if (visible(p_, s_, row, key)) bits |= std::uint64_t{1} << (key - first_key);
  }
  return bits;
}

void TileWalker::find_runs(TileTask& task) const {
  const std::int64_t keys = min64(end_key_ - task.first_key, kTileKeys);
  const auto rows = static_cast<int>(unit_.row_end - unit_.row_begin);
  task.num_runs = 0;
  task.seen = 0;
  task.seen_by_all = ~std::uint64_t{0};
  if (p_.window_left < 0 && task.first_key + kTileKeys <= min64(s_.n - s_.m, end_key_)) {
    task.runs[task.num_runs++] = {0, rows, task.seen_by_all};
    task.seen = task.seen_by_all;
    return;
  }
  for (std::int64_t i = first_row_; i <= last_row_; ++i) {
    const std::uint64_t bits = visible_keys(rows_[i - first_row_], task.first_key, keys);
    const auto begin = static_cast<int>(max64(i * p_.group, unit_.row_begin) - unit_.row_begin);
    const auto end = static_cast<int>(min64((i + 1) * p_.group, unit_.row_end) - unit_.row_begin);
    task.seen |= bits;
    task.seen_by_all &= bits;
    if (task.num_runs > 0 && task.runs[task.num_runs - 1].visible == bits) {
      task.runs[task.num_runs - 1].count += end - begin;
    } else {
      task.runs[task.num_runs++] = {begin, end - begin, bits};
    }
  }
}

void TileWalker::find_addresses(TileTask& task) const {
  const std::int64_t k_bytes = bytes_of(p_.k.dtype);
  const std::int64_t v_bytes = bytes_of(p_.v.dtype);
  std::int64_t page = task.first_key / p_.page_size;
  std::int64_t offset = task.first_key - page * p_.page_size;
  int j = 0;
  while (j < task.keys) {
    // Keys of one page: the id is followed only where a key of it is seen.
    const auto run = static_cast<int>(min64(p_.page_size - offset, task.keys - j));
    if (task.seen & bit_range(j, j + run)) {
      const std::int64_t id = page_id(p_.pages, s_, page);
      const char* k = static_cast<const char*>(p_.k.data) +
                      (id * p_.k.page_stride + offset * p_.k.token_stride +
                       unit_.head_begin * p_.k.head_stride) *
                          k_bytes;
      const char* v = static_cast<const char*>(p_.v.data) +
                      (id * p_.v.page_stride + offset * p_.v.token_stride +
                       unit_.head_begin * p_.v.head_stride) *
                          v_bytes;
      for (int i = 0; i < run; ++i) {
        const bool seen = task.seen >> (j + i) & 1;
        task.k_rows[j + i] = seen ? k + i * p_.k.token_stride * k_bytes : zeros_;
        task.v_rows[j + i] = seen ? v + i * p_.v.token_stride * v_bytes : zeros_;
      }
    } else {
      for (int i = 0; i < run; ++i) task.k_rows[j + i] = task.v_rows[j + i] = zeros_;
    }
    j += run;
    offset = 0;
    ++page;
  }
  for (; j < kTileKeys; ++j) task.k_rows[j] = task.v_rows[j] = zeros_;
}

void TileWalker::next_head(TileTask& task) const {
  const std::int64_t k_step = p_.k.head_stride * bytes_of(p_.k.dtype);
  const std::int64_t v_step = p_.v.head_stride * bytes_of(p_.v.dtype);
  if (task.seen == ~std::uint64_t{0}) {
    for (int j = 0; j < kTileKeys; ++j) {
      task.k_rows[j] += k_step;
      task.v_rows[j] += v_step;
    }
    return;
  }
  for (std::uint64_t left = task.seen; left != 0; left &= left - 1) {
    const int j = __builtin_ctzll(left);
    task.k_rows[j] += k_step;
    task.v_rows[j] += v_step;
  }
}

bool TileWalker::next(TileTask& task) {
  while (next_key_ < end_key_) {
    task.first_key = next_key_;
    next_key_ += kTileKeys;
    find_runs(task);
    if (task.seen == 0) continue;
    task.keys = 64 - __builtin_clzll(task.seen);
    find_addresses(task);
    return true;
  }
  return false;
}

}  // namespace pagedecode::cpu
