// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "check_ops.h"

#include "problems.h"

namespace pagedecode {
namespace {

using testing::tensor;

// 3 tokens of Hkv = 2, D = 16; 8 pages of P = 4.
struct Caches {
  std::vector<float> k, v, k_cache, v_cache;
  std::vector<std::int64_t> slots{1, -1, 30};
  AppendArgs args;

  Caches() : k(3 * 32), v(3 * 32), k_cache(8 * 4 * 32), v_cache(8 * 4 * 32) {
    args.k = tensor(k.data(), DType::kFloat32, {3, 2, 16});
    args.v = tensor(v.data(), DType::kFloat32, {3, 2, 16});
    args.k_cache = tensor(k_cache.data(), DType::kFloat32, {8, 4, 2, 16});
    args.v_cache = tensor(v_cache.data(), DType::kFloat32, {8, 4, 2, 16});
    args.slots = tensor(slots.data(), DType::kInt64, {3});
  }
};

TEST(CheckAppend, FillsTheProblem) {
  Caches c;
  const AppendProblem p = check_append(c.args);
  EXPECT_EQ(p.tokens, 3);
  EXPECT_EQ(p.num_pages, 8);
  EXPECT_EQ(p.page_size, 4);
  EXPECT_EQ(p.num_kv_heads, 2);
  EXPECT_EQ(p.head_dim, 16);
  EXPECT_EQ(p.k.row_stride, 32);
  EXPECT_EQ(p.slots[2], 30);
}

TEST(CheckAppend, Refuses) {
  Caches c;
  c.args.v.shape[0] = 2;
  EXPECT_REFUSED(InvalidArgument, "v: got shape [2, 2, 16], want [T = 3", check_append(c.args));
  c = Caches();
  c.args.k.dtype = DType::kFloat64;
  EXPECT_REFUSED(InvalidType, "k: got dtype float64", check_append(c.args));
  c = Caches();
  c.args.k_cache.read_only = true;
  EXPECT_REFUSED(InvalidArgument, "k_cache: got a read-only array", check_append(c.args));
  c = Caches();
  c.args.v_cache.data = c.k_cache.data();
  EXPECT_REFUSED(InvalidArgument, "v_cache: got memory that overlaps k_cache",
                 check_append(c.args));
  c = Caches();
  c.args.k_cache.strides[0] = 0;
  EXPECT_REFUSED(InvalidArgument, "k_cache: got strides (0, ", check_append(c.args));
  c = Caches();
  c.args.slots.shape[0] = 4;
  EXPECT_REFUSED(InvalidArgument, "slots: got shape [4], want [T = 3]", check_append(c.args));
  c = Caches();
  c.args.k_scale.value = 0;
  EXPECT_REFUSED(InvalidArgument, "k_scale: got 0", check_append(c.args));
}

TEST(CheckAppend, SlotPastThePoolChangesNothing) {
  Caches c;
  c.k.assign(c.k.size(), 7.0f);
  c.slots[2] = 32;
  EXPECT_REFUSED(InvalidArgument, "slots: got slot 32", append(c.args));
  for (float x : c.k_cache) ASSERT_EQ(x, 0.0f);
}

TEST(CheckMove, UnnamedBytesAreFine) {
  Caches c;
  MoveArgs m;
  m.k_cache = tensor(c.k_cache.data(), DType::kUInt8, {8, 4, 2, 16});
  m.v_cache = tensor(c.v_cache.data(), DType::kUInt8, {8, 4, 2, 16});
  m.src_slots = tensor(c.slots.data(), DType::kInt64, {3});
  m.dst_slots = tensor(c.slots.data(), DType::kInt64, {2});
  EXPECT_REFUSED(InvalidArgument, "dst_slots: got shape [2], want [len(src_slots) = 3]",
                 check_move(m));
  m.dst_slots.shape[0] = 3;
  EXPECT_EQ(check_move(m).pairs, 3);
}

TEST(CheckSlots, Refuses) {
  std::vector<std::int32_t> table(4), lens(2), offsets{0, 1, 3};
  std::vector<std::int64_t> out(3);
  SlotsArgs s;
  s.block_table = tensor(table.data(), DType::kInt32, {2, 2});
  s.seq_lens = tensor(lens.data(), DType::kInt32, {2});
  s.cu_seqlens_q = tensor(offsets.data(), DType::kInt32, {3});
  s.out = tensor(out.data(), DType::kInt64, {3});
  EXPECT_REFUSED(InvalidArgument, "page_size: got 0", check_slots(s));
  s.page_size = 4;
  EXPECT_EQ(check_slots(s).total_q, 3);
  s.out.dtype = DType::kInt32;
  EXPECT_REFUSED(InvalidType, "out: got dtype int32, want int64", check_slots(s));
}

struct States {
  std::vector<float> a, b, lse_a, lse_b;
  MergeArgs args;
  std::vector<StateView> views;

  // b has room for elements that lie two apart.
  States() : a(2 * 3 * 8), b(2 * a.size()), lse_a(6), lse_b(6) {
    args.outs = {tensor(a.data(), DType::kFloat32, {2, 3, 8}),
                 tensor(b.data(), DType::kFloat32, {2, 3, 8})};
    args.lses = {tensor(lse_a.data(), DType::kFloat32, {2, 3}),
                 tensor(lse_b.data(), DType::kFloat32, {2, 3})};
    args.out = args.outs[0];  // in place
    args.lse = args.lses[0];
  }
};

TEST(CheckMerge, InPlaceAndStridesOfAnyKind) {
  States s;
  s.args.outs[1].strides[2] = 2;
  const MergeProblem p = check_merge(s.args, &s.views);
  EXPECT_EQ(p.num_states, 2);
  EXPECT_EQ(p.rows, 2);
  EXPECT_EQ(p.states[1].dim_stride, 2);
  EXPECT_EQ(p.result.out.data, s.a.data());
}

TEST(CheckMerge, Refuses) {
  States s;
  s.args.lses.pop_back();
  EXPECT_REFUSED(InvalidArgument, "lses: got 1 arrays, want 2", check_merge(s.args, &s.views));
  s = States();
  s.args.outs[1].shape[0] = 1;
  EXPECT_REFUSED(InvalidArgument, "outs[1]: got shape [1, 3, 8], want [rows = 2",
                 check_merge(s.args, &s.views));
  s = States();
  s.args.outs.clear();
  s.args.lses.clear();
  EXPECT_REFUSED(InvalidArgument, "outs: got no states", check_merge(s.args, &s.views));
  s = States();
  s.args.out.data = s.a.data() + 1;  // partly over the first state
  EXPECT_REFUSED(InvalidArgument, "out: got memory that overlaps outs[0]",
                 check_merge(s.args, &s.views));
  s = States();
  s.args.lses[1].dtype = DType::kFloat16;
  EXPECT_REFUSED(InvalidType, "lses[1]: got dtype float16", check_merge(s.args, &s.views));
}

}  // namespace
}  // namespace pagedecode
