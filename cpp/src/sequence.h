// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// What one sequence of a call is: its rows, its keys, its pages. Lengths and offsets out of range
// are clamped here (the CPU has refused them before; CUDA reads nothing back), so that no index
// made from a SequenceView leaves the caller's arrays.
#pragma once

#include <cstdint>

#include "problem.h"

namespace pagedecode {

PD_HOST_DEVICE std::int64_t min64(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
PD_HOST_DEVICE std::int64_t max64(std::int64_t a, std::int64_t b) { return a > b ? a : b; }
PD_HOST_DEVICE std::int64_t clamp64(std::int64_t x, std::int64_t lo, std::int64_t hi) {
  return min64(max64(x, lo), hi);
}
PD_HOST_DEVICE std::int64_t ceil_div64(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

struct SequenceView {
  std::int64_t index;       // b
  std::int64_t first_row;   // of total_q
  std::int64_t m;           // query rows
  std::int64_t n;           // keys, those of the rows included
  std::int64_t first_page;  // offset of its page ids in PageTable::entries, in elements
};

// Entries that the table holds for sequence b, and where they start.
PD_HOST_DEVICE std::int64_t page_entries(const PageTable& t, std::int64_t b, std::int64_t* first) {
  if (!t.indptr) {
    *first = b * t.row_stride;
    return t.width;
  }
  const std::int64_t begin = clamp64(t.indptr[b], 0, t.width);
  const std::int64_t end = clamp64(t.indptr[b + 1], begin, t.width);
  *first = begin * t.entries.stride;
  return end - begin;
}

PD_HOST_DEVICE SequenceView load_sequence(const DecodeProblem& p, std::int64_t b) {
  SequenceView s;
  s.index = b;
  if (p.cu_seqlens_q) {
    s.first_row = clamp64(p.cu_seqlens_q[b], 0, p.total_q);
    s.m = min64(clamp64(p.cu_seqlens_q[b + 1], s.first_row, p.total_q) - s.first_row, p.max_q);
  } else {
    s.first_row = b * p.uniform_q;
    s.m = p.uniform_q;
  }
  const std::int64_t entries = page_entries(p.pages, b, &s.first_page);
  const std::int64_t n = max64(p.seq_lens[b], 0);
  // NOTE: entries * page_size cannot overflow: both are checked to be below 2^31.
  s.n = min64(n, entries * p.page_size);
  return s;
}

// The page id of logical page `i` of a sequence whose entries begin at `first_page`, as stored (it
// may be out of range).
PD_HOST_DEVICE std::int64_t page_id(const PageTable& t, std::int64_t first_page, std::int64_t i) {
  const std::int64_t at = first_page + i * t.entries.stride;
  return t.entries.wide ? static_cast<const std::int64_t*>(t.entries.data)[at]
                        : static_cast<const std::int32_t*>(t.entries.data)[at];
}
PD_HOST_DEVICE std::int64_t page_id(const PageTable& t, const SequenceView& s, std::int64_t i) {
  return page_id(t, s.first_page, i);
}

// Element offset of row i of a sequence in q or out.
PD_HOST_DEVICE std::int64_t row_offset(const RowsView& r, const SequenceView& s, std::int64_t i,
                                       bool ragged) {
  return ragged ? (s.first_row + i) * r.row_stride : s.index * r.seq_stride + i * r.row_stride;
}

}  // namespace pagedecode
