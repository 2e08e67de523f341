// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/plan.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "cpu/paged_call.h"

namespace pagedecode::cpu {
namespace {

// Every (sequence, head, row) belongs to one unit.
void expect_cover(const DecodeProblem& p, const Plan& plan) {
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, int> count;
  for (std::int64_t u = 0; u < plan.units(); ++u) {
    const std::int64_t b = plan.sequence_of_unit(u);
    const SequencePlan& s = plan.sequences[static_cast<std::size_t>(b)];
    const Unit unit = unit_at(p, plan, b, u - s.unit_begin);
    EXPECT_LE(unit.head_end - unit.head_begin, plan.heads_per_unit);
    EXPECT_LE(unit.row_end - unit.row_begin, plan.max_block_rows);
    for (std::int64_t h = unit.head_begin; h < unit.head_end; ++h) {
      for (std::int64_t r = unit.row_begin; r < unit.row_end; ++r) ++count[{b, h, r}];
    }
  }
  std::int64_t rows = 0;
  for (std::int64_t b = 0; b < p.batch; ++b) rows += load_sequence(p, b).m * p.group;
  EXPECT_EQ(static_cast<std::int64_t>(count.size()), rows * p.num_kv_heads);
  for (const auto& [at, times] : count) EXPECT_EQ(times, 1);
}

TEST(Plan, UnitsCoverEveryRowOnce) {
  for (const int heads : {1, 3, 8, 20}) {
    for (const int group : {1, 7, 128}) {
      Shape shape;
      shape.m = {0, 3, 1, 0, 9, 0};
      shape.n = {5, 100, 0, 0, 700, 30};
      shape.kv_heads = heads;
      shape.group = group;
      shape.head_dim = 8;
      for (const bool hnd : {false, true}) {
        shape.hnd = hnd;
        PagedCall call(shape, 1);
        for (const std::int64_t splits : {0, 1, 5}) {
          call.p.num_splits = splits;
          expect_cover(call.p, make_plan(call.p, 4));
        }
      }
    }
  }
}

TEST(Plan, ALongSequenceIsSplit) {
  Shape shape;
  shape.m = {1, 1, 1};
  shape.n = {40000, 100, 100};
  shape.head_dim = 8;
  PagedCall call(shape, 1);
  const Plan plan = make_plan(call.p, 4);
  EXPECT_GE(plan.sequences[0].splits, 8);
  EXPECT_EQ(plan.sequences[1].splits, 1);
  EXPECT_EQ(make_plan(call.p, 1).max_splits, 1);
  call.p.batch_invariant = true;
  EXPECT_EQ(make_plan(call.p, 4).max_splits, 1);
}

TEST(Plan, SplitsAskedForAreMade) {
  Shape shape;
  shape.n = {1000};  // 16 tiles
  PagedCall call(shape, 1);
  call.p.num_splits = 3;
  EXPECT_EQ(make_plan(call.p, 1).max_splits, 3);
  call.p.num_splits = 1 << 20;
  EXPECT_EQ(make_plan(call.p, 1).max_splits, 16);
}

TEST(Plan, AWindowLeavesOutTiles) {
  Shape shape;
  shape.m = {2};
  shape.n = {10000};
  PagedCall call(shape, 1);
  call.p.window_left = 100;
  const Plan plan = make_plan(call.p, 1);
  EXPECT_EQ(plan.sequences[0].key_begin, 10000 - 2 - 100);
  EXPECT_LE(plan.tiles, 3 * call.p.num_kv_heads);
}

TEST(Plan, NoRowsNoUnits) {
  Shape shape;
  shape.m = {0, 0};
  shape.n = {50, 0};
  PagedCall call(shape, 1);
  EXPECT_EQ(make_plan(call.p, 2).units(), 0);
}

}  // namespace
}  // namespace pagedecode::cpu
