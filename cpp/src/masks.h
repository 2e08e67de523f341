// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Who sees whom. Keys 0 .. n - m - 1 of a sequence are its prefix, key n - m + j is the draft key
// of row j. A row sees, of the prefix, one range [prefix_begin, n - m) cut by its window; of the
// draft block, what the causal rule or the draft mask leaves, cut by its window too.
#pragma once

#include <cstdint>

#include "sequence.h"

namespace pagedecode {

// One query row of a sequence, ready for mask questions.
struct RowMask {
  std::int64_t row;           // i
  std::int64_t flat_row;      // of total_q: indexes positions and draft_mask
  std::int64_t position;      // pos(i)
  std::int64_t min_position;  // smallest position that its window leaves visible
};

inline constexpr std::int64_t kNoWindow = INT64_MIN;

// Position of row i of a sequence; of draft key n - m + i as well.
PD_HOST_DEVICE std::int64_t row_position(const DecodeProblem& p, const SequenceView& s,
                                         std::int64_t i) {
  return p.positions ? p.positions[s.first_row + i] : s.n - s.m + i;
}

PD_HOST_DEVICE std::int64_t key_position(const DecodeProblem& p, const SequenceView& s,
                                         std::int64_t key) {
  const std::int64_t draft = key - (s.n - s.m);
  return draft < 0 || !p.positions ? key : p.positions[s.first_row + draft];
}

// a - b without overflow: positions are the caller's and may be anything.
PD_HOST_DEVICE std::int64_t saturating_sub64(std::int64_t a, std::int64_t b) {
  if (b > 0 && a < INT64_MIN + b) return INT64_MIN;
  if (b < 0 && a > INT64_MAX + b) return INT64_MAX;
  return a - b;
}

PD_HOST_DEVICE RowMask load_row(const DecodeProblem& p, const SequenceView& s, std::int64_t i) {
  RowMask r;
  r.row = i;
  r.flat_row = s.first_row + i;
  r.position = row_position(p, s, i);
  r.min_position = p.window_left < 0 ? kNoWindow : saturating_sub64(r.position, p.window_left);
  return r;
}

// Exact visibility of key 0 <= key < n.
PD_HOST_DEVICE bool visible(const DecodeProblem& p, const SequenceView& s, const RowMask& r,
                            std::int64_t key) {
  const std::int64_t draft = key - (s.n - s.m);
  if (draft < 0) return key >= r.min_position;
  if (p.draft_mask.kind != MaskKind::kNone) {
    // A row whose own key does not exist (i < m - n) sees nothing, whatever its bits.
    if (r.row < s.m - s.n || !p.draft_mask(r.flat_row, draft)) return false;
  } else if (p.causal && draft > r.row) {
    return false;
  }
  return key_position(p, s, key) >= r.min_position;
}

// First key that the row may see: nothing before it is visible.
PD_HOST_DEVICE std::int64_t row_begin(const SequenceView& s, const RowMask& r) {
  const std::int64_t prefix = max64(s.n - s.m, 0);
  return clamp64(r.min_position, 0, prefix);
}

// One past the last key that the row may see.
PD_HOST_DEVICE std::int64_t row_end(const DecodeProblem& p, const SequenceView& s,
                                    const RowMask& r) {
  if (p.draft_mask.kind != MaskKind::kNone) return r.row < s.m - s.n ? 0 : s.n;
  if (!p.causal) return s.n;
  return clamp64(s.n - s.m + r.row + 1, 0, s.n);
}

// Whether the row surely sees every key of [begin, end): such tiles need no mask.
PD_HOST_DEVICE bool sees_all(const SequenceView& s, const RowMask& r, std::int64_t begin,
                             std::int64_t end) {
  return end <= s.n - s.m && begin >= r.min_position;
}

}  // namespace pagedecode
