// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "rope.h"

#include "problems.h"

namespace pagedecode {
namespace {

TEST(Rope, Pairs) {
  RopeParams r;
  EXPECT_EQ(rope_first(r, 3), 3);
  EXPECT_EQ(rope_second(r, 64, 3), 35);
  r.interleaved = true;
  EXPECT_EQ(rope_first(r, 3), 6);
  EXPECT_EQ(rope_second(r, 64, 3), 7);
}

// The contract allows 1e-3 at position 2^17; a float32 product is off by 4e-3.
TEST(Rope, AnglesAtFarPositions) {
  RopeParams r;
  r.theta = 1e5;
  r.scale = 1.25;
  for (std::int64_t position : {0L, 1L, 4097L, 1L << 17, -5L}) {
    for (std::int32_t t : {0, 1, 17, 63}) {
      const long double exact = position / 1.25L * std::pow(1e5L, -2.0L * t / 128.0L);
      const float angle = rope_angle(rope_turns(r, 128, t), position);
      EXPECT_NEAR(std::cos(angle), static_cast<double>(std::cos(exact)), 1e-6);
      EXPECT_NEAR(std::sin(angle), static_cast<double>(std::sin(exact)), 1e-6);
      EXPECT_LE(std::fabs(angle), 3.1415928f);
    }
  }
}

}  // namespace
}  // namespace pagedecode
