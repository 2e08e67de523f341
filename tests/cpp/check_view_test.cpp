// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Views and enumerators that cannot be: refused before anything is read or written.
#include <climits>

#include "check_decode.h"
#include "check_ops.h"
#include "check_util.h"
#include "problems.h"

namespace pagedecode {
namespace {

using testing::Call;
using testing::tensor;

TEST(CheckView, NumberOfDimensions) {
  for (int ndim : {-1, 5, 100, INT_MAX, INT_MIN}) {
    const std::string got = "got " + std::to_string(ndim) + " dimensions, want 0 to 4";
    Call c;
    c.args.q.ndim = ndim;
    EXPECT_REFUSED(InvalidArgument, "q: " + got, decode(c.args));
    EXPECT_REFUSED(InvalidArgument, "q: " + got, workspace_size(c.args));
    c = Call();
    c.args.out.ndim = ndim;
    EXPECT_REFUSED(InvalidArgument, "out: " + got, workspace_size(c.args));
    c = Call();
    c.args.block_table->ndim = ndim;
    EXPECT_REFUSED(InvalidArgument, "block_table: " + got, decode(c.args));
    c = Call();
    c.args.workspace = tensor(nullptr, DType::kUInt8, {0});
    c.args.workspace->ndim = ndim;
    EXPECT_REFUSED(InvalidArgument, "workspace: " + got, decode(c.args));
    c = Call();
    c.args.k_scale.array = tensor(nullptr, DType::kFloat32, {1});
    c.args.k_scale.array->ndim = ndim;
    EXPECT_REFUSED(InvalidArgument, "k_scale: " + got, decode(c.args));
  }
}

TEST(CheckView, NegativeSizes) {
  Call c;
  c.args.k_cache.shape[0] = -1;
  c.args.v_cache.shape[0] = -1;
  EXPECT_REFUSED(InvalidArgument, "k_cache: got shape [-1, 4, 2, 16], want sizes of 0 or more",
                 decode(c.args));
  c = Call();
  c.args.q.shape[1] = -2;
  EXPECT_REFUSED(InvalidArgument, "q: got shape [2, -2, 4, 16]", workspace_size(c.args));
  c = Call();
  c.args.block_table->shape[1] = INT64_MIN;
  EXPECT_REFUSED(InvalidArgument, "block_table: got shape [2, -9223372036854775808]",
                 workspace_size(c.args));
  c = Call();
  std::uint8_t byte = 0;
  c.args.workspace = tensor(&byte, DType::kUInt8, {-1});
  EXPECT_REFUSED(InvalidArgument, "workspace: got shape [-1]", decode(c.args));
}

// Offsets in bytes that wrap would reach other memory than the overlap checks see.
TEST(CheckView, Extents) {
  for (std::int64_t stride : {INT64_MAX, INT64_MIN, INT64_MAX / 4, -INT64_MAX / 4}) {
    Call c;
    c.args.out.strides[0] = stride;
    EXPECT_REFUSED(InvalidArgument, "out: got strides (" + std::to_string(stride), decode(c.args));
    c = Call();
    c.args.seq_lens.strides[0] = stride;
    EXPECT_REFUSED(InvalidArgument, "seq_lens: got strides (", decode(c.args));
    for (float x : c.out) ASSERT_EQ(x, 123.0f);
  }
  Tensor t = tensor(nullptr, DType::kInt8, {3, 1, 2, 1});
  t.strides[0] = kMaxExtent / 4;
  t.strides[1] = INT64_MAX;  // of one element: means nothing
  t.strides[2] = 1 - kMaxExtent / 2;
  EXPECT_NO_THROW(check_view("t", t));
  t.strides[2] = -kMaxExtent / 2;
  EXPECT_REFUSED(InvalidArgument, "t: got strides (", check_view("t", t));
  t = tensor(nullptr, DType::kInt8, {1, 1});
  t.shape[0] = t.shape[1] = std::int64_t{1} << 30;
  t.strides[0] = t.strides[1] = 0;
  EXPECT_REFUSED(InvalidArgument, "t: got shape [1073741824, 1073741824], want fewer than 2^59",
                 check_view("t", t));
  t.shape[0] = 0;
  EXPECT_NO_THROW(check_view("t", t));
}

TEST(CheckView, Devices) {
  Call c;
  c.args.q.device.type = static_cast<DeviceType>(7);
  EXPECT_REFUSED(InvalidArgument, "q: got DeviceType(7), want kCpu or kCuda", decode(c.args));
  c = Call();
  c.args.v_cache.device.index = 1;
  EXPECT_REFUSED(InvalidArgument, "v_cache: got device index 1, want 0 on the CPU", decode(c.args));
  c = Call();
  c.args.q.device = {DeviceType::kCuda, -1};
  EXPECT_REFUSED(InvalidArgument, "q: got device index -1, want 0 or more", decode(c.args));
}

TEST(CheckView, Enumerators) {
  EXPECT_STREQ(name_of(static_cast<DType>(77)), "unknown");
  EXPECT_EQ(size_of(static_cast<DType>(255)), 0);
  Call c;
  c.args.q.dtype = static_cast<DType>(99);
  EXPECT_REFUSED(InvalidType, "q: got dtype unknown, want float16", decode(c.args));
  c = Call();
  c.args.workspace = tensor(c.q.data(), static_cast<DType>(99), {64});
  EXPECT_ANY_THROW(decode(c.args));
  c = Call();
  c.args.kv_layout = static_cast<KVLayout>(9);
  EXPECT_REFUSED(InvalidArgument, "kv_layout: got KVLayout(9), want kNHD or kHND", decode(c.args));
  c = Call();
  c.args.lse_base = static_cast<LseBase>(9);
  EXPECT_REFUSED(InvalidArgument, "lse_base: got LseBase(9), want kE or k2", decode(c.args));
}

TEST(CheckView, OtherCalls) {
  std::vector<StateView> views;
  MergeArgs merge;
  float x[8] = {};
  merge.outs = {tensor(x, DType::kFloat32, {1, 1, 4})};
  merge.lses = {tensor(x + 4, DType::kFloat32, {1, 1})};
  merge.out = merge.outs[0];
  merge.lse = merge.lses[0];
  EXPECT_NO_THROW(check_merge(merge, &views));
  merge.lse_base = static_cast<LseBase>(2);
  EXPECT_REFUSED(InvalidArgument, "lse_base: got LseBase(2)", check_merge(merge, &views));
  merge.lse_base = LseBase::kE;
  merge.lses[0].ndim = 9;
  EXPECT_REFUSED(InvalidArgument, "lses[0]: got 9 dimensions", merge_states(merge));

  AppendArgs append_args;
  append_args.k_cache.ndim = 100;
  EXPECT_REFUSED(InvalidArgument, "k_cache: got 100 dimensions", append(append_args));
  MoveArgs move_args;
  move_args.k_cache.ndim = INT_MAX;
  EXPECT_REFUSED(InvalidArgument, "k_cache: got 2147483647 dimensions", move(move_args));
  SlotsArgs slots_args;
  slots_args.seq_lens = tensor(nullptr, DType::kInt32, {-4});
  EXPECT_REFUSED(InvalidArgument, "seq_lens: got shape [-4]", slots(slots_args));
}

TEST(CheckView, LargestQueryBoundOfAMask) {
  Call c;
  c.make_ragged();
  std::uint32_t words[6] = {};
  bool bits[6] = {};
  c.args.max_seqlen_q = INT64_MAX;
  c.args.draft_mask = tensor(words, DType::kUInt32, {6, 1});
  EXPECT_REFUSED(InvalidArgument,
                 "draft_mask: got shape [6, 1], want rows of 288230376151711744 words for",
                 decode(c.args));
  c.args.draft_mask = tensor(bits, DType::kBool, {6, 1});
  EXPECT_REFUSED(InvalidArgument,
                 "draft_mask: got shape [6, 1], want a width of 9223372036854775807 or",
                 decode(c.args));
}

}  // namespace
}  // namespace pagedecode
