// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// slots: for each query row, the slot of its own key n - m + i.
#include <cstdint>
#include <string>

#include "backend.h"
#include "pagedecode/error.h"
#include "sequence.h"

namespace pagedecode::cpu {
namespace {

std::string of_sequence(std::int64_t b) { return " for sequence " + std::to_string(b); }

// Offsets and lengths of sequence b, refused where they are out of range.
SequenceView checked_sequence(const SlotsProblem& p, std::int64_t b) {
  const std::int64_t begin = p.cu_seqlens_q[b];
  const std::int64_t end = p.cu_seqlens_q[b + 1];
  if (begin < 0 || end < begin || end > p.total_q || (b == 0 && begin != 0)) {
    throw InvalidArgument(
        "cu_seqlens_q: got " + std::to_string(begin) + ", " + std::to_string(end) + of_sequence(b) +
        ", want offsets that start at 0, never fall, and end at most at total_q = " +
        std::to_string(p.total_q));
  }
  SequenceView s;
  s.index = b;
  s.first_row = begin;
  s.m = end - begin;
  s.n = p.seq_lens[b];
  const std::int64_t keys = page_entries(p.pages, b, &s.first_page) * p.page_size;
  if (s.n < 0 || s.n > keys) {
    throw InvalidArgument("seq_lens: got " + std::to_string(s.n) + of_sequence(b) + ", want 0 to " +
                          std::to_string(keys) + " (what its pages hold)");
  }
  return s;
}

// The slot of key `key` >= 0.
std::int64_t slot_of(const SlotsProblem& p, const SequenceView& s, std::int64_t key) {
  const std::int64_t page = page_id(p.pages, s, key / p.page_size);
  if (page < 0) {
    throw InvalidArgument("block_table: got page " + std::to_string(page) + of_sequence(s.index) +
                          ", want 0 or more where a row's own key lies");
  }
  if (page >= INT64_MAX / p.page_size) {
    throw InvalidArgument("block_table: got page " + std::to_string(page) + of_sequence(s.index) +
                          ", want ids whose slots fit 64 bits, below " +
                          std::to_string(INT64_MAX / p.page_size));
  }
  return page * p.page_size + key % p.page_size;
}

}  // namespace

void slots(const SlotsProblem& p) {
  // Look at everything before anything is written.
  for (int pass = 0; pass < 2; ++pass) {
    std::int64_t row = 0;
    for (std::int64_t b = 0; b < p.batch; ++b) {
      const SequenceView s = checked_sequence(p, b);
      for (std::int64_t i = 0; i < s.m; ++i, ++row) {
        const std::int64_t key = s.n - s.m + i;
        const std::int64_t slot = key < 0 ? -1 : slot_of(p, s, key);
        if (pass == 1) p.out[row * p.out_stride] = slot;
      }
    }
    if (pass == 1) {
      for (; row < p.total_q; ++row) p.out[row * p.out_stride] = -1;
    }
  }
}

}  // namespace pagedecode::cpu
