// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "check_decode.h"

#include "problems.h"

namespace pagedecode {
namespace {

using testing::Call;
using testing::tensor;

DecodeProblem make(const Call& c) { return check_decode(c.args, true); }

TEST(CheckDecode, FillsTheProblem) {
  Call c;
  const DecodeProblem p = make(c);
  EXPECT_EQ(p.batch, 2);
  EXPECT_EQ(p.total_q, 6);
  EXPECT_EQ(p.uniform_q, 3);
  EXPECT_EQ(p.max_q, 3);
  EXPECT_TRUE(p.max_q_known);
  EXPECT_EQ(p.num_q_heads, 4);
  EXPECT_EQ(p.num_kv_heads, 2);
  EXPECT_EQ(p.group, 2);
  EXPECT_EQ(p.head_dim, 16);
  EXPECT_EQ(p.page_size, 4);
  EXPECT_EQ(p.pages.num_pages, 8);
  EXPECT_EQ(p.pages.width, 2);
  EXPECT_EQ(p.q.seq_stride, 3 * 4 * 16);
  EXPECT_EQ(p.k.page_stride, 4 * 2 * 16);
  EXPECT_EQ(p.k.token_stride, 2 * 16);
  EXPECT_EQ(p.k.head_stride, 16);
  EXPECT_FLOAT_EQ(p.softmax_scale, 0.25f);
}

TEST(CheckDecode, HeadsFirstLayout) {
  Call c;
  c.args.k_cache = tensor(c.k.data(), DType::kFloat32, {8, 2, 4, 16});
  c.args.v_cache = tensor(c.v.data(), DType::kFloat32, {8, 2, 4, 16});
  c.args.kv_layout = KVLayout::kHND;
  const DecodeProblem p = make(c);
  EXPECT_EQ(p.page_size, 4);
  EXPECT_EQ(p.num_kv_heads, 2);
  EXPECT_EQ(p.k.token_stride, 16);
  EXPECT_EQ(p.k.head_stride, 4 * 16);
}

TEST(CheckDecode, RaggedKnowsItsLargestM) {
  Call c;
  c.make_ragged();
  DecodeProblem p = make(c);
  EXPECT_EQ(p.max_q, 6);
  EXPECT_FALSE(p.max_q_known);
  read_query_offsets(c.args, &p);
  EXPECT_EQ(p.max_q, 4);
  EXPECT_TRUE(p.max_q_known);
}

TEST(CheckDecode, ShapeOnlyProblemsTakeTheGivenBound) {
  Call c;
  c.make_ragged();
  c.args.max_seqlen_q = 5;
  EXPECT_EQ(make(c).max_q, 5);
  c.args.max_seqlen_q = 500;
  EXPECT_EQ(make(c).max_q, 6);
}

TEST(CheckDecode, StridesOfSizeOneDimensionsMeanNothing) {
  Call c;
  c.args.q = tensor(c.q.data(), DType::kFloat32, {2, 1, 4, 16});
  c.args.q.strides[1] = 7777;
  c.args.out = tensor(c.out.data(), DType::kFloat32, {2, 1, 4, 16});
  c.args.out.strides[1] = 3;
  const DecodeProblem p = make(c);
  EXPECT_EQ(p.q.row_stride, 0);
  EXPECT_EQ(p.out.row_stride, 0);
}

TEST(CheckDecode, RanksAndShapes) {
  Call c;
  c.args.q.ndim = 3;
  EXPECT_REFUSED(InvalidArgument, "q: got shape [2, 3, 4], want [B, m, Hq, D]", make(c));
  c = Call();
  c.args.v_cache.shape[0] = 7;
  EXPECT_REFUSED(InvalidArgument, "v_cache: got shape [7, 4, 2, 16]", make(c));
  c = Call();
  c.args.q.shape[2] = 3;
  EXPECT_REFUSED(InvalidArgument, "q: got 3 heads", make(c));
  c = Call();
  c.args.seq_lens.shape[0] = 3;
  EXPECT_REFUSED(InvalidArgument, "seq_lens: got shape [3], want [B = 2]", make(c));
  c = Call();
  c.args.block_table.reset();
  EXPECT_REFUSED(InvalidArgument, "block_table: got none", make(c));
  c = Call();
  c.args.out.ndim = 0;
  EXPECT_REFUSED(InvalidArgument, "out: got shape []", make(c));
  EXPECT_NO_THROW(check_decode(c.args, false));
}

TEST(CheckDecode, Types) {
  Call c;
  c.args.q.dtype = DType::kFloat64;
  EXPECT_REFUSED(InvalidType, "q: got dtype float64", make(c));
  c = Call();
  c.args.k_cache.dtype = DType::kUInt8;
  EXPECT_REFUSED(InvalidType, "k_cache: got dtype uint8, want kv_dtype", make(c));
  c = Call();
  c.args.seq_lens.dtype = DType::kUInt32;
  EXPECT_REFUSED(InvalidType, "seq_lens: got dtype uint32, want int32 or int64", make(c));
  c = Call();
  c.args.out.dtype = DType::kInt8;
  EXPECT_REFUSED(InvalidType, "out: got dtype int8", make(c));
}

TEST(CheckDecode, WhatNoBackendDoes) {
  Call c;
  c.args.q.shape[3] = 264;
  EXPECT_REFUSED(Unsupported, "q: got head dim 264, want a multiple of 8 from 8 to 256", make(c));
  c.args.q.shape[3] = 20;
  EXPECT_REFUSED(Unsupported, "q: got head dim 20", make(c));
  c = Call();
  c.args.q.shape[2] = 2 * 129;
  EXPECT_REFUSED(Unsupported, "q: got 129 query heads for each KV head", make(c));
}

TEST(CheckDecode, DevicesAgree) {
  Call c;
  c.args.k_cache.device = {DeviceType::kCuda, 1};
  EXPECT_REFUSED(InvalidArgument, "k_cache: got an array on cuda:1, want one on cpu", make(c));
  c = Call();
  c.args.seq_lens.device = {DeviceType::kCuda, 0};
  EXPECT_REFUSED(InvalidArgument, "seq_lens: got an array on cuda:0", make(c));
}

TEST(CheckDecode, CudaTypes) {
  Call c;
  c.move_to_cuda();
  EXPECT_NO_THROW(make(c));
  c.args.k_cache.dtype = DType::kBFloat16;
  EXPECT_REFUSED(Unsupported, "k_cache: got dtype bfloat16 on CUDA", make(c));
  c.args.k_cache.dtype = DType::kInt8;
  EXPECT_NO_THROW(make(c));
  c.args.q.dtype = DType::kFloat32;
  EXPECT_REFUSED(Unsupported, "q: got dtype float32 on CUDA", make(c));
}

TEST(CheckDecode, CudaStridesAndAlignment) {
  Call c;
  c.move_to_cuda();
  c.args.k_cache.strides[0] = 0;
  EXPECT_REFUSED(InvalidArgument, "k_cache: got strides (0, 32, 16, 1)", make(c));
  c.args.k_cache.strides[0] = -128;
  EXPECT_REFUSED(InvalidArgument, "k_cache: got strides (-128", make(c));
  c.args.k_cache.strides[0] = 132;  // 264 bytes
  EXPECT_REFUSED(InvalidArgument, "k_cache: got strides (132", make(c));
  c.args.k_cache.strides[0] = 136;
  EXPECT_NO_THROW(make(c));
  c = Call();
  c.move_to_cuda();
  c.args.q.data = c.q.data() + 2;
  EXPECT_REFUSED(InvalidArgument, "q: got data 8 bytes past a multiple of 16 bytes", make(c));
}

TEST(CheckDecode, CudaRowsOfByteCachesNeedEightBytesAtOddMultiples) {
  Call c;
  c.args.q = tensor(c.q.data(), DType::kFloat32, {2, 3, 4, 24});
  c.args.out = tensor(c.out.data(), DType::kFloat32, {2, 3, 4, 24});
  c.args.k_cache = tensor(c.k.data(), DType::kInt8, {8, 4, 2, 24});
  c.args.v_cache = tensor(c.v.data(), DType::kInt8, {8, 4, 2, 24});
  c.move_to_cuda();
  EXPECT_NO_THROW(make(c));
  c.args.k_cache.strides[0] += 4;
  EXPECT_REFUSED(InvalidArgument, "k_cache: got strides", make(c));
}

TEST(CheckDecode, EmptyArraysMayBeNull) {
  Call c;
  c.args.q = tensor(nullptr, DType::kFloat32, {0, 3, 4, 16});
  c.args.out = tensor(nullptr, DType::kFloat32, {0, 3, 4, 16});
  c.args.block_table = tensor(nullptr, DType::kInt32, {0, 5});
  c.args.seq_lens = tensor(nullptr, DType::kInt64, {0});
  EXPECT_EQ(make(c).batch, 0);
  c.args.k_cache = tensor(nullptr, DType::kFloat32, {0, 4, 2, 16});
  c.args.v_cache = tensor(nullptr, DType::kFloat32, {0, 4, 2, 16});
  EXPECT_EQ(make(c).pages.num_pages, 0);
  c.args.seq_lens = tensor(nullptr, DType::kInt64, {2});
  EXPECT_REFUSED(InvalidArgument, "seq_lens: got shape [2]", make(c));
  c = Call();
  c.args.q.data = nullptr;
  EXPECT_REFUSED(InvalidArgument, "q: got null data", make(c));
}

TEST(CheckDecode, Workspace) {
  Call c;
  alignas(16) std::uint8_t bytes[64];
  DecodeProblem p = make(c);
  c.args.workspace = tensor(bytes, DType::kUInt8, {64});
  check_workspace(c.args, 64, &p);
  EXPECT_EQ(p.workspace, bytes);
  EXPECT_EQ(p.workspace_bytes, 64u);
  EXPECT_REFUSED(InvalidArgument, "workspace: got 64 bytes, want at least 65",
                 check_workspace(c.args, 65, &p));
  c.args.workspace = tensor(bytes + 1, DType::kUInt8, {32});
  EXPECT_REFUSED(InvalidArgument, "workspace: got data", check_workspace(c.args, 8, &p));
  c.args.workspace = tensor(bytes, DType::kInt8, {64});
  EXPECT_REFUSED(InvalidType, "workspace: got dtype int8", check_workspace(c.args, 8, &p));
  c.args.workspace = tensor(c.q.data(), DType::kUInt8, {64});
  c.args.q.data = c.q.data();
  c.args.workspace->data = c.out.data();
  EXPECT_REFUSED(InvalidArgument, "workspace: got memory that overlaps out", make(c));
}

}  // namespace
}  // namespace pagedecode
