// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/merge/state.h"

#include <gtest/gtest.h>

#include <cmath>

namespace pagedecode::cuda {
namespace {

TEST(State, EmptyIsNeutral) {
  const SoftmaxState empty{-INFINITY, 0.0f};
  SoftmaxState s{3.5f, 2.0f};
  FoldWeights w = fold(s, empty);
  EXPECT_EQ(w.left, 1.0f);
  EXPECT_EQ(w.right, 0.0f);
  EXPECT_EQ(s.ref, 3.5f);
  EXPECT_EQ(s.sum, 2.0f);
  SoftmaxState t = empty;
  w = fold(t, {3.5f, 2.0f});
  EXPECT_EQ(w.left, 0.0f);
  EXPECT_EQ(w.right, 1.0f);
  EXPECT_EQ(t.sum, 2.0f);
  SoftmaxState both = empty;
  fold(both, empty);
  EXPECT_EQ(both.ref, -INFINITY);
  EXPECT_EQ(both.sum, 0.0f);
}

TEST(State, NaNSurvives) {
  for (float ref : {-INFINITY, 1.0f}) {
    SoftmaxState s{ref, NAN};
    fold(s, {7.0f, 1.0f});
    EXPECT_TRUE(std::isnan(s.sum));
    EXPECT_TRUE(std::isnan(finish(s, -INFINITY, false).lse));
  }
}

TEST(State, FarReferencesDoNotOverflow) {
  SoftmaxState s{-22626.0f, 1.0f};
  fold(s, {300.0f, 4.0f});
  EXPECT_EQ(s.ref, 300.0f);
  EXPECT_EQ(s.sum, 4.0f);
  EXPECT_NEAR(finish(s, -INFINITY, true).lse, 302.0f, 1e-4f);
}

TEST(State, FinishWithoutKeys) {
  const SoftmaxState empty{-INFINITY, 0.0f};
  RowResult r = finish(empty, -INFINITY, false);
  EXPECT_EQ(r.out_scale, 0.0f);
  EXPECT_EQ(r.lse, -INFINITY);
  // The sink alone: its logit is the LSE.
  r = finish(empty, 1.5f * kLog2e, false);
  EXPECT_EQ(r.out_scale, 0.0f);
  EXPECT_NEAR(r.lse, 1.5f, 1e-6f);
}

TEST(State, SinkJoinsTheDenominatorOnce) {
  const SoftmaxState s{2.0f, 3.0f};  // 3 * 2^2
  const RowResult r = finish(s, 3.0f, true);
  EXPECT_NEAR(r.lse, std::log2(12.0f + 8.0f), 1e-6f);
  EXPECT_NEAR(r.out_scale * 4.0f, 4.0f / 20.0f * 4.0f, 1e-6f);
}

}  // namespace
}  // namespace pagedecode::cuda
