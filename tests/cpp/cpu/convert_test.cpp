// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace pagedecode::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNaN = std::nanf("");

// All finite magnitudes of a type, ascending, by its decoder.
template <class S>
std::vector<float> magnitudes(int bits) {
  std::vector<float> all;
  for (int i = 0; i < 1 << (bits - 1); ++i) {
    const float x = S::load(static_cast<typename S::Bits>(i));
    if (std::isfinite(x)) all.push_back(x);
  }
  return all;
}

// The neighbours of every midpoint round to the nearer side, midpoints to the even code.
template <class S>
void expect_nearest_even(int bits) {
  const std::vector<float> all = magnitudes<S>(bits);
  for (std::size_t i = 0; i + 1 < all.size(); ++i) {
    ASSERT_LT(all[i], all[i + 1]);
    const float middle = 0.5f * (all[i] + all[i + 1]);
    for (const float sign : {1.0f, -1.0f}) {
      const float below = sign * std::nextafter(middle, 0.0f);
      const float above = sign * std::nextafter(middle, kInf);
      ASSERT_EQ(S::load(S::save(sign * all[i])), sign * all[i]);
      ASSERT_EQ(S::load(S::save(below)), sign * all[i]) << below;
      ASSERT_EQ(S::load(S::save(above)), sign * all[i + 1]) << above;
      ASSERT_EQ(S::load(S::save(sign * middle)), sign * all[i % 2 == 0 ? i : i + 1]) << middle;
    }
  }
}

TEST(Convert, NearestEven) {
  expect_nearest_even<Stored<DType::kFloat8E4M3>>(8);
  expect_nearest_even<Stored<DType::kFloat8E5M2>>(8);
  expect_nearest_even<Stored<DType::kFloat16>>(16);
}

TEST(Convert, BFloat16RoundsToNearestEven) {
  EXPECT_EQ(to_bfloat16(1.0f), 0x3f80);
  EXPECT_EQ(to_bfloat16(float_of(0x3f808000)), 0x3f80);  // half way, even below
  EXPECT_EQ(to_bfloat16(float_of(0x3f818000)), 0x3f82);  // half way, even above
  EXPECT_EQ(to_bfloat16(float_of(0x3f808001)), 0x3f81);
  EXPECT_EQ(to_bfloat16(float_of(0x7f7fffff)), 0x7f80);  // overflows to infinity
  EXPECT_EQ(to_bfloat16(float_of(0x00018000)), 0x0002);  // denormal
}

TEST(Convert, LargestAndBeyond) {
  using E4 = Stored<DType::kFloat8E4M3>;
  using E5 = Stored<DType::kFloat8E5M2>;
  using H = Stored<DType::kFloat16>;
  for (const float x : {448.0f, 449.0f, 479.0f, 1e6f, 3e38f, kInf}) {
    EXPECT_EQ(E4::load(E4::save(x)), 448.0f) << x;
    EXPECT_EQ(E4::load(E4::save(-x)), -448.0f) << x;
  }
  for (const float x : {57344.0f, 60000.0f, 65536.0f, 3e38f, kInf}) {
    EXPECT_EQ(E5::load(E5::save(x)), 57344.0f) << x;
    EXPECT_EQ(E5::load(E5::save(-x)), -57344.0f) << x;
  }
  EXPECT_EQ(H::load(H::save(65519.0f)), 65504.0f);
  EXPECT_EQ(H::load(H::save(65520.0f)), kInf);
  EXPECT_EQ(H::load(H::save(-kInf)), -kInf);
}

TEST(Convert, NaN) {
  for (const float nan : {kNaN, -kNaN, float_of(0x7f800001)}) {
    EXPECT_TRUE(
        std::isnan(Stored<DType::kFloat8E4M3>::load(Stored<DType::kFloat8E4M3>::save(nan))));
    EXPECT_TRUE(
        std::isnan(Stored<DType::kFloat8E5M2>::load(Stored<DType::kFloat8E5M2>::save(nan))));
    EXPECT_TRUE(std::isnan(Stored<DType::kFloat16>::load(Stored<DType::kFloat16>::save(nan))));
    EXPECT_TRUE(std::isnan(Stored<DType::kBFloat16>::load(Stored<DType::kBFloat16>::save(nan))));
    EXPECT_EQ(to_int8(nan), 0);
  }
}

TEST(Convert, Int8) {
  EXPECT_EQ(to_int8(0.5f), 0);
  EXPECT_EQ(to_int8(1.5f), 2);
  EXPECT_EQ(to_int8(-2.5f), -2);
  EXPECT_EQ(to_int8(126.6f), 127);
  EXPECT_EQ(to_int8(kInf), 127);
  EXPECT_EQ(to_int8(-1e9f), -127);
}

TEST(Convert, SpecialValuesOfFloat8) {
  EXPECT_EQ(Stored<DType::kFloat8E5M2>::load(0x7c), kInf);
  EXPECT_EQ(Stored<DType::kFloat8E5M2>::load(0xfc), -kInf);
  EXPECT_TRUE(std::isnan(Stored<DType::kFloat8E5M2>::load(0x7d)));
  EXPECT_TRUE(std::isnan(Stored<DType::kFloat8E4M3>::load(0xff)));
  EXPECT_EQ(Stored<DType::kFloat8E4M3>::load(0x01), std::ldexp(1.0f, -9));
  EXPECT_TRUE(std::signbit(Stored<DType::kFloat8E4M3>::load(0x80)));
}

}  // namespace
}  // namespace pagedecode::cpu
