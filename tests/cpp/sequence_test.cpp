// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "sequence.h"

#include "problems.h"

namespace pagedecode {
namespace {

IndexArray indices(const std::vector<std::int32_t>& v, std::int64_t stride = 1) {
  return {v.data(), stride, false};
}

struct Ragged {
  std::vector<std::int32_t> offsets{0, 2, 2, 6};
  std::vector<std::int32_t> lens{5, 0, 9};
  std::vector<std::int32_t> table{10, 11, 12, 20, 21, 22, 30, 31, 32};
  DecodeProblem p;

  Ragged() {
    p.batch = 3;
    p.total_q = 6;
    p.max_q = 6;
    p.page_size = 4;
    p.pages.entries = indices(table);
    p.pages.row_stride = 3;
    p.pages.width = 3;
    p.seq_lens = indices(lens);
    p.cu_seqlens_q = indices(offsets);
  }
};

TEST(Sequence, TableRows) {
  const Ragged r;
  const SequenceView s = load_sequence(r.p, 2);
  EXPECT_EQ(s.first_row, 2);
  EXPECT_EQ(s.m, 4);
  EXPECT_EQ(s.n, 9);
  EXPECT_EQ(page_id(r.p.pages, s, 0), 30);
  EXPECT_EQ(page_id(r.p.pages, s, 2), 32);
  EXPECT_EQ(load_sequence(r.p, 1).m, 0);
}

TEST(Sequence, PageLists) {
  Ragged r;
  const std::vector<std::int32_t> indptr{0, 2, 2, 5};
  const std::vector<std::int32_t> ids{7, 6, 5, 4, 3};
  r.p.pages = {indices(ids), 0, 5, indices(indptr), 8};
  EXPECT_EQ(page_id(r.p.pages, load_sequence(r.p, 0), 1), 6);
  EXPECT_EQ(page_id(r.p.pages, load_sequence(r.p, 2), 2), 3);
  std::int64_t first = 0;
  EXPECT_EQ(page_entries(r.p.pages, 1, &first), 0);
  EXPECT_EQ(page_entries(r.p.pages, 2, &first), 3);
}

// What CUDA cannot refuse is clamped: nothing outside the arrays may be reached.
TEST(Sequence, LengthsAndOffsetsOutOfRangeAreClamped) {
  Ragged r;
  r.lens = {-3, 13, 1 << 30};
  r.offsets = {-5, 4, 2, 100};
  EXPECT_EQ(load_sequence(r.p, 0).n, 0);
  EXPECT_EQ(load_sequence(r.p, 0).first_row, 0);
  EXPECT_EQ(load_sequence(r.p, 0).m, 4);
  EXPECT_EQ(load_sequence(r.p, 1).n, 12);
  EXPECT_EQ(load_sequence(r.p, 1).m, 0);
  EXPECT_EQ(load_sequence(r.p, 2).n, 12);
  EXPECT_EQ(load_sequence(r.p, 2).m, 4);
  r.p.max_q = 3;
  EXPECT_EQ(load_sequence(r.p, 2).m, 3);

  const std::vector<std::int32_t> indptr{-1, 9, 2, 5};
  r.p.pages = {indices(r.table), 0, 5, indices(indptr), 8};
  std::int64_t first = 0;
  EXPECT_EQ(page_entries(r.p.pages, 0, &first), 5);
  EXPECT_EQ(first, 0);
  EXPECT_EQ(page_entries(r.p.pages, 1, &first), 0);
  EXPECT_EQ(page_entries(r.p.pages, 2, &first), 3);
  EXPECT_EQ(first, 2);
}

TEST(Sequence, UniformRows) {
  Ragged r;
  r.p.cu_seqlens_q = {};
  r.p.uniform_q = 2;
  EXPECT_EQ(load_sequence(r.p, 2).first_row, 4);
  EXPECT_EQ(load_sequence(r.p, 2).m, 2);
  RowsView rows;
  rows.seq_stride = 1000;
  rows.row_stride = 10;
  EXPECT_EQ(row_offset(rows, load_sequence(r.p, 2), 1, false), 2010);
  EXPECT_EQ(row_offset(rows, load_sequence(r.p, 2), 1, true), 50);
}

TEST(Sequence, WideAndStridedIndices) {
  const std::vector<std::int64_t> wide{1, -1, std::int64_t{1} << 40, -1};
  const IndexArray a{wide.data(), 2, true};
  EXPECT_EQ(a[1], std::int64_t{1} << 40);
  const IndexArray backwards{wide.data() + 2, -2, true};
  EXPECT_EQ(backwards[1], 1);
}

}  // namespace
}  // namespace pagedecode
