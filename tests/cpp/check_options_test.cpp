// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "check_decode.h"
#include "problems.h"

namespace pagedecode {
namespace {

using testing::Call;
using testing::tensor;

DecodeProblem make(const Call& c) { return check_decode(c.args, true); }

TEST(CheckOptions, Numbers) {
  Call c;
  c.args.softmax_scale = std::nan("");
  EXPECT_REFUSED(InvalidArgument, "softmax_scale: got nan", make(c));
  c.args.softmax_scale = -2.0;
  EXPECT_FLOAT_EQ(make(c).softmax_scale, -2.0f);
  c.args.softcap = -1;
  EXPECT_REFUSED(InvalidArgument, "softcap: got -1", make(c));
  c.args.softcap = 1e-60;  // 0 in float32: would be off
  EXPECT_REFUSED(InvalidArgument, "softcap: got 1e-60", make(c));
  c.args.softcap = 0;
  c.args.window_left = -2;
  EXPECT_REFUSED(InvalidArgument, "window_left: got -2", make(c));
  c.args.window_left = INT64_MAX;
  EXPECT_EQ(make(c).window_left, INT64_MAX);
}

TEST(CheckOptions, Splits) {
  Call c;
  c.args.num_splits = 0;
  EXPECT_REFUSED(InvalidArgument, "num_splits: got 0", make(c));
  c.args.num_splits = 3;
  EXPECT_EQ(make(c).num_splits, 3);
  c.args.batch_invariant = true;
  EXPECT_REFUSED(InvalidArgument, "num_splits: got 3, want None with batch_invariant", make(c));
}

TEST(CheckOptions, MaxSeqlenQ) {
  Call c;
  c.args.max_seqlen_q = 2;
  EXPECT_REFUSED(InvalidArgument, "max_seqlen_q: got 2, want at least 3", make(c));
  c.args.max_seqlen_q = -1;
  EXPECT_REFUSED(InvalidArgument, "max_seqlen_q: got -1", make(c));
  c = Call();
  c.make_ragged();
  c.args.max_seqlen_q = 3;
  DecodeProblem p = make(c);
  EXPECT_REFUSED(InvalidArgument, "max_seqlen_q: got 3, want at least 4",
                 read_query_offsets(c.args, &p));
}

TEST(CheckOptions, ScalesOfNumbers) {
  for (double bad :
       {0.0, -1.0, 1e-60, 1e60, std::nan(""), std::numeric_limits<double>::infinity()}) {
    Call c;
    c.args.k_scale.value = bad;
    EXPECT_REFUSED(InvalidArgument, "k_scale: got ", make(c));
    c = Call();
    c.args.v_scale.value = bad;
    EXPECT_REFUSED(InvalidArgument, "v_scale: got ", make(c));
  }
}

TEST(CheckOptions, ScalesOfArrays) {
  Call c;
  float scales[4] = {0.5f, 2.0f, 4.0f, 8.0f};
  c.args.k_scale.array = tensor(scales, DType::kFloat32, {2});
  c.args.v_scale.array = tensor(scales + 2, DType::kFloat32, {1});
  const DecodeProblem p = make(c);
  EXPECT_EQ(p.k_scale[0], 0.5f);
  EXPECT_EQ(p.k_scale[1], 2.0f);
  EXPECT_EQ(p.v_scale[1], 4.0f);
  c.args.k_scale.array = tensor(scales, DType::kFloat32, {3});
  EXPECT_REFUSED(InvalidArgument, "k_scale: got shape [3]", make(c));
}

TEST(CheckOptions, MaskWidths) {
  Call c;  // m = 3
  std::vector<std::uint8_t> bits(6 * 96);
  for (std::int64_t width : {3, 32}) {
    c.args.draft_mask = tensor(bits.data(), DType::kBool, {6, width});
    EXPECT_EQ(make(c).draft_mask.width, width);
  }
  for (std::int64_t width : {0, 2, 4, 64}) {
    c.args.draft_mask = tensor(bits.data(), DType::kBool, {6, width});
    EXPECT_REFUSED(InvalidArgument, "draft_mask: got shape [6, ", make(c));
  }
  c.args.max_seqlen_q = 33;
  for (std::int64_t width : {33, 64}) {
    c.args.draft_mask = tensor(bits.data(), DType::kBool, {6, width});
    EXPECT_NO_THROW(make(c));
  }
  c.args.draft_mask = tensor(bits.data(), DType::kUInt32, {6, 2});
  EXPECT_EQ(make(c).draft_mask.width, 64);
  c.args.draft_mask = tensor(bits.data(), DType::kUInt32, {6, 1});
  EXPECT_REFUSED(InvalidArgument, "draft_mask: got shape [6, 1], want rows of 2 words", make(c));
  c.args.draft_mask = tensor(bits.data(), DType::kInt32, {6, 2});
  EXPECT_REFUSED(InvalidType, "draft_mask: got dtype int32", make(c));
  c.args.draft_mask = tensor(bits.data(), DType::kBool, {5, 33});
  EXPECT_REFUSED(InvalidArgument, "draft_mask: got shape [5, 33], want [total_q = 6", make(c));
}

TEST(CheckOptions, RaggedMaskWidthIsThatOfTheLargestM) {
  Call c;  // m = 2 and 4
  c.make_ragged();
  std::vector<std::uint8_t> bits(6 * 32);
  c.args.draft_mask = tensor(bits.data(), DType::kBool, {6, 4});
  DecodeProblem p = make(c);
  EXPECT_NO_THROW(read_query_offsets(c.args, &p));
  c.args.draft_mask = tensor(bits.data(), DType::kBool, {6, 6});
  EXPECT_NO_THROW(p = make(c));  // nothing is read yet
  EXPECT_REFUSED(InvalidArgument, "draft_mask: got shape [6, 6], want a width of 4 or 32",
                 read_query_offsets(c.args, &p));
}

TEST(CheckOptions, Rope) {
  Call c;
  c.args.rope = Rope{0.0, 1.0, false};
  EXPECT_REFUSED(InvalidArgument, "rope: got theta 0", make(c));
  c.args.rope = Rope{1e4, std::nan(""), false};
  EXPECT_REFUSED(InvalidArgument, "rope: got scale nan", make(c));
  c.args.rope = Rope{1e4, 2.0, true};
  EXPECT_TRUE(make(c).rope.interleaved);
}

TEST(CheckOptions, ArraysOfHeadsAndRows) {
  Call c;
  float heads[4] = {};
  std::int64_t rows[6] = {};
  c.args.alibi_slopes = tensor(heads, DType::kFloat32, {2});
  EXPECT_REFUSED(InvalidArgument, "alibi_slopes: got shape [2], want [Hq = 4]", make(c));
  c.args.alibi_slopes.reset();
  c.args.sinks = tensor(heads, DType::kFloat64, {2});
  EXPECT_REFUSED(InvalidType, "sinks: got dtype float64", make(c));
  c.args.sinks.reset();
  c.args.positions = tensor(rows, DType::kInt64, {5});
  EXPECT_REFUSED(InvalidArgument, "positions: got shape [5], want [total_q = 6]", make(c));
}

TEST(CheckOptions, StreamOnTheCpu) {
  Call c;
  c.args.stream = c.q.data();
  EXPECT_REFUSED(InvalidArgument, "stream: ", make(c));
}

}  // namespace
}  // namespace pagedecode
