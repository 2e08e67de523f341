// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Which problems the wgmma kernels take; needs no GPU.
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "cuda/decode/launch.h"
#include "cuda/decode_wgmma/launch.h"
#include "cuda/decode_wgmma/variants.h"
#include "environment.h"
#include "pagedecode/error.h"
#include "problems.h"

namespace pagedecode::cuda {
namespace {

DeviceInfo hopper() { return {0, 132, 9, 0, 227 * 1024}; }

DecodeProblem problem(DType q, DType kv) {
  static std::uint64_t aligned[2];
  DecodeProblem p;
  p.group = 8;
  p.num_kv_heads = 8;
  p.batch = 64;
  p.head_dim = 128;
  p.page_size = 64;
  p.pages.num_pages = 10;
  p.q.dtype = q;
  p.k = {aligned, kv, 64 * 8 * 128, 8 * 128, 128};
  const auto at = (reinterpret_cast<std::uintptr_t>(aligned) + 15) / 16 * 16;
  p.k.data = reinterpret_cast<void*>(at);
  p.v = p.k;
  return p;
}

std::string name_for(const DecodeProblem& p, std::int64_t rows) {
  const WgmmaChoice c = choose_wgmma(p, hopper(), rows);
  return c.variant < 0 ? c.why_not : kWgmmaVariants[c.variant].name;
}

TEST(WgmmaPolicy, FewestRowsThatHoldTheTile) {
  const DecodeProblem bf16 = problem(DType::kBFloat16, DType::kBFloat16);
  EXPECT_EQ(name_for(bf16, 1), "bf16_d128_r8");
  EXPECT_EQ(name_for(bf16, 8), "bf16_d128_r8");
  EXPECT_EQ(name_for(bf16, 9), "bf16_d128_r16");
  EXPECT_EQ(name_for(bf16, 33), "bf16_d128_r64");
  EXPECT_EQ(name_for(bf16, 64), "bf16_d128_r64");
  EXPECT_EQ(name_for(bf16, 65), "bf16_d128_r128");
  EXPECT_EQ(name_for(bf16, 1000), "bf16_d128_r128");
  EXPECT_EQ(name_for(problem(DType::kFloat16, DType::kFloat16), 100), "fp16_d128_r128");
  EXPECT_EQ(name_for(problem(DType::kFloat16, DType::kFloat16), 8), "fp16_d128_r16");
  EXPECT_EQ(name_for(problem(DType::kFloat16, DType::kInt8), 8), "bytes_d128_r32");
  EXPECT_EQ(name_for(problem(DType::kBFloat16, DType::kFloat8E4M3), 8), "e4m3_d128_r8");
  EXPECT_EQ(name_for(problem(DType::kBFloat16, DType::kFloat8E5M2), 32), "bytes_d128_r32");
  EXPECT_EQ(name_for(problem(DType::kBFloat16, DType::kFloat8E5M2), 64), "bytes_d128_r64");
  EXPECT_EQ(name_for(problem(DType::kBFloat16, DType::kFloat8E4M3), 64), "e4m3_d128_r64");
  EXPECT_EQ(name_for(problem(DType::kBFloat16, DType::kFloat8E4M3), 65), "e4m3_d128_r128");
  EXPECT_EQ(name_for(problem(DType::kBFloat16, DType::kInt8), 1000), "bytes_d128_r128");
}

TEST(WgmmaPolicy, FewItemsHaveKernelsOfTheirOwn) {
  DecodeProblem bf16 = problem(DType::kBFloat16, DType::kBFloat16);
  DecodeProblem p = problem(DType::kBFloat16, DType::kFloat8E4M3);
  for (int batch : {1, 16}) {  // 8 KV heads, 132 blocks
    p.batch = bf16.batch = batch;
    EXPECT_EQ(name_for(p, 8), "e4m3_d128_r8_few");
    EXPECT_EQ(name_for(p, 9), "e4m3_d128_r16_few");
    EXPECT_EQ(name_for(p, 32), "e4m3_d128_r32_few");
    EXPECT_EQ(name_for(bf16, 8), "bf16_d128_r8_few");
    EXPECT_EQ(name_for(bf16, 32), "bf16_d128_r32_few");
    EXPECT_EQ(name_for(bf16, 33), "bf16_d128_r64");
    EXPECT_EQ(name_for(p, 33), batch == 1 ? "e4m3_d128_r64_few" : "e4m3_d128_r64");
    EXPECT_EQ(name_for(bf16, 128), batch == 1 ? "bf16_d128_r128_few" : "bf16_d128_r128");
    EXPECT_EQ(name_for(bf16, 129), "bf16_d128_r128");
  }
  p.batch = bf16.batch = 17;
  EXPECT_EQ(name_for(p, 8), "e4m3_d128_r8");
  EXPECT_EQ(name_for(p, 32), "e4m3_d128_r32");
  EXPECT_EQ(name_for(bf16, 8), "bf16_d128_r8");
  p.total_q = p.max_q = 1;
  p.num_q_heads = 64;
  p.pages.width = 10;
  if (wgmma_is_built()) {
    const Explanation many = explain_decode(p, hopper());
    EXPECT_EQ(many.kernel, "wgmma_e4m3_d128_r8");
    EXPECT_EQ(many.why.find("one item"), std::string::npos) << many.why;
    p.batch = 1;
    const Explanation few = explain_decode(p, hopper());
    EXPECT_EQ(few.kernel, "wgmma_e4m3_d128_r8_few");
    EXPECT_NE(few.why.find("one item"), std::string::npos) << few.why;
  }
  // Which depends on the batch.
  p.batch = 1;
  p.batch_invariant = true;
  EXPECT_EQ(name_for(p, 8), "e4m3_d128_r8");
  // Splits that the caller asks for are folded.
  p.batch_invariant = false;
  p.num_splits = 4;
  EXPECT_EQ(name_for(p, 8), "e4m3_d128_r8");
}

TEST(WgmmaPolicy, WhoGathersSplits) {
  if (!wgmma_is_built()) GTEST_SKIP() << "no wgmma in this build";
  DecodeProblem p = problem(DType::kBFloat16, DType::kBFloat16);
  p.num_q_heads = 64;
  p.pages.width = 10;
  const auto gathers = [&](int batch, int rows) {
    p.batch = batch;
    p.total_q = batch * rows / 8;
    p.max_q = rows / 8;
    return explain_decode(p, hopper()).why.find("gathered") != std::string::npos;
  };
  EXPECT_TRUE(gathers(1, 8));
  EXPECT_TRUE(gathers(16, 8));  // a kernel for few items, 128 of them
  EXPECT_FALSE(gathers(17, 8));
  EXPECT_TRUE(gathers(1, 64));  // a kernel that folds, too: 16 splits of an item
  EXPECT_FALSE(gathers(2, 64));
  EXPECT_TRUE(gathers(1, 128));  // large states
  EXPECT_FALSE(gathers(2, 128));
  EXPECT_FALSE(gathers(1, 136));  // two passes
  p.num_splits = 4;
  EXPECT_FALSE(gathers(1, 8));
  EXPECT_FALSE(gathers(1, 64));
  p.num_splits = 0;
  p.batch_invariant = true;
  EXPECT_FALSE(gathers(1, 8));
  EXPECT_FALSE(gathers(1, 64));
  p.batch_invariant = false;
  test::EnvironmentVariable forced("PAGEDECODE_KERNEL");
  forced.set("independent");
  EXPECT_FALSE(gathers(1, 8));
  EXPECT_FALSE(gathers(1, 64));
  EXPECT_EQ(explain_decode(p, hopper()).kernel, "wgmma_bf16_d128_r64");
}

// A workspace is good for any shapes in any order: what no call may write to but the exchange lies
// in all of them at the same place, and what stands in for a gathering kernel has room, too.
TEST(WgmmaPolicy, AWorkspaceHasRoomForTheExchange) {
  if (!wgmma_is_built()) GTEST_SKIP() << "no wgmma in this build";
  DecodeProblem p = problem(DType::kBFloat16, DType::kBFloat16);
  p.num_q_heads = 64;
  p.pages.width = 10;
  const std::size_t exchange = std::size_t{132} * kExchangeBytesOfSm;
  test::EnvironmentVariable forced("PAGEDECODE_KERNEL");
  for (int batch : {1, 16, 64}) {
    for (int m : {1, 4, 8, 16}) {
      p.batch = batch;
      p.total_q = batch * m;
      p.max_q = m;
      forced.unset();
      const std::size_t chosen = decode_workspace_bytes(p, hopper());
      EXPECT_GT(chosen, kCounterBytes + exchange);
      forced.set("independent");
      EXPECT_GE(chosen, decode_workspace_bytes(p, hopper()));
      forced.set("mma");
      EXPECT_GT(decode_workspace_bytes(p, hopper()), kCounterBytes + exchange);
    }
  }
  forced.unset();
  for (const WgmmaVariant& v : kWgmmaVariants) {
    if (!wgmma_gathers(v)) continue;
    EXPECT_LE(2 * wgmma_slot_bytes(v) * v.blocks_per_sm, kExchangeBytesOfSm) << v.name;
  }
  p.total_q = p.max_q = 0;
  EXPECT_LT(decode_workspace_bytes(p, hopper()), 2 * kCounterBytes);
}

TEST(WgmmaPolicy, WhatItDoesNotTake) {
  const DecodeProblem good = problem(DType::kBFloat16, DType::kBFloat16);
  const auto refuses = [&](auto&& change) {
    DecodeProblem p = good;
    change(p);
    return choose_wgmma(p, hopper(), 8).variant < 0;
  };
  EXPECT_TRUE(refuses([](DecodeProblem& p) { p.rope.on = true; }));
  EXPECT_TRUE(refuses([](DecodeProblem& p) { p.v.dtype = DType::kFloat8E4M3; }));
  EXPECT_TRUE(refuses([](DecodeProblem& p) { p.head_dim = 96; }));
  EXPECT_TRUE(refuses([](DecodeProblem& p) { p.k.token_stride += 4; }));
  EXPECT_TRUE(refuses([](DecodeProblem& p) { p.pages.num_pages = 0; }));
  DeviceInfo ada = hopper();
  ada.cc_major = 8;
  EXPECT_LT(choose_wgmma(good, ada, 8).variant, 0);
}

TEST(WgmmaPolicy, HeadDims) {
  for (DType kv : {DType::kBFloat16, DType::kFloat8E4M3}) {
    DecodeProblem p = problem(DType::kBFloat16, kv);
    p.head_dim = 64;
    EXPECT_EQ(name_for(p, 8), kv == DType::kBFloat16 ? "bf16_d64_r16" : "bytes_d64_r16");
    p.head_dim = 256;
    EXPECT_EQ(name_for(p, 8), kv == DType::kBFloat16 ? "bf16_d256_r16" : "bytes_d256_r16");
    p.head_dim = 80;
    EXPECT_EQ(name_for(p, 8), "no wgmma for this head dim");
  }
}

TEST(WgmmaPolicy, PagesThatHoldNoBoxGoByCopies) {
  DecodeProblem p = problem(DType::kBFloat16, DType::kBFloat16);
  for (int page : {8, 16, 24, 32, 64, 128, 1000}) {
    p.page_size = page;
    EXPECT_EQ(name_for(p, 8), "bf16_d128_r8") << page;
    EXPECT_EQ(name_for(p, 33), "bf16_d128_r64") << page;
  }
  for (int page : {1, 2, 4, 20}) {
    p.page_size = page;
    EXPECT_EQ(name_for(p, 8), "bf16_d128_r16_copies") << page;
    EXPECT_EQ(name_for(p, 17), "bf16_d128_r32_copies") << page;
    EXPECT_EQ(name_for(p, 1000), "bf16_d128_r64_copies") << page;
  }
  p.pages.num_pages = INT64_C(1) << 30;  // of 2 KB a token
  EXPECT_LT(choose_wgmma(p, hopper(), 8).variant, 0);
  p = problem(DType::kBFloat16, DType::kFloat8E4M3);
  p.page_size = 1;
  EXPECT_EQ(name_for(p, 32), "bytes_d128_r32_copies");
  EXPECT_EQ(name_for(p, 1000), "bytes_d128_r64_copies");
}

// Also in a build without these kernels.
TEST(WgmmaPolicy, WithBatchInvariantTheKernelDependsOnTheGroupAlone) {
  for (int group : {1, 4, 8, 20, 40}) {
    for (int head_dim : {64, 128, 256}) {
      DecodeProblem p = problem(DType::kBFloat16, DType::kFloat8E4M3);
      p.head_dim = head_dim;
      p.group = group;
      p.num_q_heads = group * p.num_kv_heads;
      p.pages.width = 100;
      p.batch_invariant = true;
      p.batch = p.total_q = p.max_q = 1;
      const Explanation step = explain_decode(p, hopper());
      p.batch = 30;
      p.total_q = 600;
      p.max_q = 20;
      const Explanation verify = explain_decode(p, hopper());
      EXPECT_EQ(step.kernel, verify.kernel);
      EXPECT_EQ(step.tile_rows, verify.tile_rows);
      EXPECT_EQ(step.tile_keys, verify.tile_keys);
    }
  }
}

TEST(WgmmaPolicy, NoVariantOfTheTableIsUnreachable) {
  std::vector<bool> reached(kNumWgmmaVariants);
  for (DType q : {DType::kBFloat16, DType::kFloat16}) {
    for (DType kv : {q, DType::kFloat8E4M3, DType::kFloat8E5M2}) {
      for (int d : {64, 128, 256}) {
        for (int page : {1, 16, 64}) {
          for (int rows : {1, 9, 17, 33, 200, -1, -9, -17, -33, -100}) {
            DecodeProblem p = problem(q, kv);
            if (rows < 0) p.batch = 1;
            p.head_dim = d;
            p.page_size = page;
            const int i = choose_wgmma(p, hopper(), std::abs(rows)).variant;
            if (i >= 0) reached[i] = true;
          }
        }
      }
    }
  }
  for (int i = 0; i < kNumWgmmaVariants; ++i) EXPECT_TRUE(reached[i]) << kWgmmaVariants[i].name;
}

// A loader that waits for a tile of a whole round of the stages ago waits for ever: the barrier's
// phase has the same parity again.
TEST(WgmmaPolicy, TilesOnTheirWayAreFewerThanPlacesForThem) {
  for (const WgmmaVariant& v : kWgmmaVariants) {
    EXPECT_GE(wgmma_flight(v), 1) << v.name;
    EXPECT_LT(wgmma_flight(v), v.stages) << v.name;
    const int bytes = 2 * wgmma_keys(v) * v.head_dim * (v.cache == CacheKind::kSame ? 2 : 1);
    const int of_an_sm = wgmma_flight(v) * v.blocks_per_sm * bytes;
    EXPECT_TRUE(of_an_sm <= 65536 || wgmma_flight(v) <= 2) << v.name << ": " << of_an_sm;
  }
}

TEST(WgmmaPolicy, RowsFirstHas64RowsToAWarpgroup) {
  for (const WgmmaVariant& v : kWgmmaVariants) {
    if (v.order != WgmmaOrder::kRowsFirst) continue;
    EXPECT_TRUE(v.rows == 64 || v.rows == 64 * v.groups) << v.name;
    EXPECT_EQ(wgmma_keys(v), 64) << v.name;
    EXPECT_EQ(v.load, WgmmaLoad::kTma) << v.name;
  }
}

TEST(WgmmaPolicy, StridesOfDimensionsOfSizeOneAreIgnored) {
  DecodeProblem p = problem(DType::kBFloat16, DType::kBFloat16);
  p.num_kv_heads = 1;
  p.k.head_stride = p.v.head_stride = 3;
  EXPECT_EQ(name_for(p, 8), "bf16_d128_r8_few");
}

TEST(WgmmaPolicy, MostKeysOfATable) {
  DecodeProblem p = problem(DType::kBFloat16, DType::kBFloat16);
  p.batch = p.total_q = p.max_q = 1;
  p.num_q_heads = 64;
  p.pages.width = (INT64_C(1) << 25) - 4;  // 2^31 - 256 keys
  EXPECT_NO_THROW(check_decode_supported(p, hopper()));
  ++p.pages.width;
  EXPECT_REFUSED(Unsupported, "block_table: got room for 2147483456 keys",
                 check_decode_supported(p, hopper()));
}

TEST(WgmmaPolicy, TheEnvironmentLeavesItOut) {
  DecodeProblem p = problem(DType::kBFloat16, DType::kBFloat16);
  p.batch = p.total_q = p.max_q = 1;
  p.num_q_heads = 64;
  p.pages.width = 8;
  const test::EnvironmentVariable forced("PAGEDECODE_KERNEL");
  forced.set("mma");
  const Explanation e = explain_decode(p, hopper());
  EXPECT_EQ(e.kernel, "mma_bf16_d128");
  EXPECT_NE(e.why.find("PAGEDECODE_KERNEL=mma"), std::string::npos) << e.why;
  forced.set("independent");
  EXPECT_EQ(explain_decode(p, hopper()).kernel, "wgmma_bf16_d128_r8");
  forced.set("wgmma");
  EXPECT_THROW(explain_decode(p, hopper()), InvalidArgument);
  forced.unset();
  EXPECT_EQ(explain_decode(p, hopper()).why.find("PAGEDECODE_KERNEL="), std::string::npos);
}

}  // namespace
}  // namespace pagedecode::cuda
