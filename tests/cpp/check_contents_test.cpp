// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "check_contents.h"

#include "check_decode.h"
#include "problems.h"

namespace pagedecode {
namespace {

using testing::Call;
using testing::tensor;

void check_all(const Call& c) { check_host_contents(check_decode(c.args, true)); }

TEST(CheckContents, Lengths) {
  Call c;
  EXPECT_NO_THROW(check_all(c));
  c.lens[1] = 8;  // all that 2 pages of 4 hold
  EXPECT_NO_THROW(check_all(c));
  c.lens[1] = 9;
  EXPECT_REFUSED(InvalidArgument, "seq_lens[1]: got 9, want 0 to 8", check_all(c));
  c.lens[1] = -1;
  EXPECT_REFUSED(InvalidArgument, "seq_lens[1]: got -1", check_all(c));
}

TEST(CheckContents, LivePageIdsOnly) {
  Call c;
  c.table = {3, 8, 5, 7};
  EXPECT_REFUSED(InvalidArgument, "block_table: got page id 8 as page 1 of sequence 0",
                 check_all(c));
  c.lens[0] = 4;  // the second entry holds no key now
  EXPECT_NO_THROW(check_all(c));
  c.table[0] = -1;
  EXPECT_REFUSED(InvalidArgument, "block_table: got page id -1 as page 0 of sequence 0",
                 check_all(c));
  c.lens[0] = 0;
  EXPECT_NO_THROW(check_all(c));
}

TEST(CheckContents, APoolWithoutPages) {
  Call c;
  c.args.k_cache.shape[0] = c.args.v_cache.shape[0] = 0;
  EXPECT_REFUSED(
      InvalidArgument,
      "block_table: got page id 3 as page 0 of sequence 0, which has 5 keys, want no keys",
      check_all(c));
}

TEST(CheckContents, WideAndStridedIds) {
  Call c;
  std::vector<std::int64_t> wide{3, -9, 1, -9, 5, -9, 7, -9};
  c.args.block_table = tensor(wide.data(), DType::kInt64, {2, 2});
  c.args.block_table->strides[0] = 4;
  c.args.block_table->strides[1] = 2;
  EXPECT_NO_THROW(check_all(c));
  wide[6] = std::int64_t{1} << 40;
  EXPECT_REFUSED(InvalidArgument, "block_table: got page id 1099511627776 as page 1 of sequence 1",
                 check_all(c));
}

TEST(CheckContents, QueryOffsets) {
  Call c;
  c.make_ragged();
  EXPECT_EQ(check_query_offsets(check_decode(c.args, true)), 4);
  c.offsets = {1, 2, 6};
  EXPECT_REFUSED(InvalidArgument, "cu_seqlens_q[0]: got 1, want 0", check_all(c));
  c.offsets = {0, 4, 3};
  EXPECT_REFUSED(InvalidArgument, "cu_seqlens_q[2]: got 3, want 4 or more", check_all(c));
  c.offsets = {0, 4, 7};
  EXPECT_REFUSED(InvalidArgument, "cu_seqlens_q[2]: got 7, want at most 6", check_all(c));
  c.offsets = {0, 0, 5};  // the last row belongs to nobody
  EXPECT_NO_THROW(check_all(c));
}

TEST(CheckContents, PageLists) {
  Call c;
  std::vector<std::int32_t> indptr{0, 2, 4};
  c.args.page_indices = *c.args.block_table;
  c.args.page_indices->ndim = 1;
  c.args.page_indices->shape[0] = 4;
  c.args.page_indices->strides[0] = 1;
  c.args.block_table.reset();
  c.args.page_indptr = tensor(indptr.data(), DType::kInt32, {3});
  EXPECT_NO_THROW(check_all(c));
  indptr = {0, 1, 4};
  EXPECT_REFUSED(InvalidArgument, "seq_lens[0]: got 5, want 0 to 4, what 1 pages of 4 hold",
                 check_all(c));
  indptr = {0, 3, 2};
  EXPECT_REFUSED(InvalidArgument, "block_table.indptr[2]: got 2, want 3 or more", check_all(c));
  indptr = {0, 2, 5};
  EXPECT_REFUSED(InvalidArgument, "block_table.indptr[2]: got 5, want at most 4", check_all(c));
  indptr = {2, 2, 4};
  EXPECT_REFUSED(InvalidArgument, "block_table.indptr[0]: got 2, want 0", check_all(c));
}

TEST(CheckContents, CapacityDoesNotOverflow) {
  Call c;
  // A page size near 2^31 by a stride of zero, and a row of 2^31 - 1 entries that are all the same.
  for (Tensor* t : {&c.args.k_cache, &c.args.v_cache}) {
    t->shape[1] = INT32_MAX;
    t->strides[0] = t->strides[1] = 0;
  }
  c.args.block_table->shape[1] = INT32_MAX;
  c.args.block_table->strides[1] = 0;
  std::vector<std::int64_t> lens{5, INT64_MAX};
  c.args.seq_lens = tensor(lens.data(), DType::kInt64, {2});
  EXPECT_REFUSED(InvalidArgument, "seq_lens[1]: got 9223372036854775807, want 0 to 46116860141",
                 check_all(c));
}

TEST(CheckContents, NothingIsWrittenWhenRefused) {
  Call c;
  c.lens[1] = 99;
  EXPECT_REFUSED(InvalidArgument, "seq_lens[1]: got 99", decode(c.args));
  for (float x : c.out) ASSERT_EQ(x, 123.0f);
}

}  // namespace
}  // namespace pagedecode
