// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Visible sets of the contract's rules, written out; then the ranges and shortcuts of masks.h
// against `visible` itself.
#include "masks.h"

#include <random>

#include "problems.h"

namespace pagedecode {
namespace {

// One sequence of m rows and n keys.
struct OneSequence {
  DecodeProblem p;
  std::vector<std::int32_t> lens;
  std::vector<std::uint8_t> bits;
  std::vector<std::int64_t> positions;

  OneSequence(std::int64_t m, std::int64_t n) : lens{static_cast<std::int32_t>(n)} {
    p.batch = 1;
    p.total_q = p.uniform_q = p.max_q = m;
    p.page_size = 1;
    p.pages.width = n;
    p.seq_lens = {lens.data(), 1, false};
  }

  void mask(std::vector<std::uint8_t> rows) {
    bits = std::move(rows);
    const std::int64_t width = static_cast<std::int64_t>(bits.size()) / p.total_q;
    p.draft_mask = {MaskKind::kBool, bits.data(), width, 1, width};
  }

  void place(std::vector<std::int64_t> at) {
    positions = std::move(at);
    p.positions = {positions.data(), 1, true};
  }

  // "1" for each key that row i sees.
  std::string seen(std::int64_t i) const {
    const SequenceView s = load_sequence(p, 0);
    const RowMask row = load_row(p, s, i);
    std::string keys;
    for (std::int64_t key = 0; key < s.n; ++key) keys += visible(p, s, row, key) ? '1' : '0';
    return keys;
  }
};

TEST(Masks, CausalIsBottomRight) {
  OneSequence q(2, 5);
  EXPECT_EQ(q.seen(0), "11110");
  EXPECT_EQ(q.seen(1), "11111");
  q.p.causal = false;
  EXPECT_EQ(q.seen(0), "11111");
}

TEST(Masks, MoreRowsThanKeys) {
  const OneSequence q(5, 2);
  EXPECT_EQ(q.seen(0), "00");
  EXPECT_EQ(q.seen(2), "00");
  EXPECT_EQ(q.seen(3), "10");
  EXPECT_EQ(q.seen(4), "11");
}

TEST(Masks, EachRowHasItsOwnWindow) {
  OneSequence q(4, 10);
  q.p.window_left = 3;
  EXPECT_EQ(q.seen(0), "0001111000");
  EXPECT_EQ(q.seen(3), "0000001111");
  q.p.window_left = 0;
  EXPECT_EQ(q.seen(1), "0000000100");
  q.p.causal = false;
  EXPECT_EQ(q.seen(1), "0000000111");
}

TEST(Masks, DraftMaskTakesThePlaceOfCausal) {
  OneSequence q(3, 5);
  q.mask({1, 0, 0, /**/ 1, 1, 0, /**/ 1, 0, 1});
  EXPECT_EQ(q.seen(0), "11100");
  EXPECT_EQ(q.seen(1), "11110");
  EXPECT_EQ(q.seen(2), "11101");
  q.p.causal = false;
  EXPECT_EQ(q.seen(0), "11100");
}

TEST(Masks, BitsOfRowsWithoutAKeyOfTheirOwnMeanNothing) {
  OneSequence q(3, 2);
  q.mask({1, 1, 1, /**/ 1, 1, 1, /**/ 1, 1, 1});
  EXPECT_EQ(q.seen(0), "00");
  EXPECT_EQ(q.seen(1), "11");
}

TEST(Masks, ColumnsPastTheWidthAreHidden) {
  OneSequence q(2, 2);
  q.mask({1, 1});  // width 1
  EXPECT_EQ(q.seen(1), "10");
}

TEST(Masks, WindowFollowsPositionsOfATree) {
  // Prefix of 4, then a root at 4 and two children, both at 5.
  OneSequence q(3, 7);
  q.mask({1, 0, 0, /**/ 1, 1, 0, /**/ 1, 0, 1});
  q.place({4, 5, 5});
  q.p.window_left = 2;
  EXPECT_EQ(q.seen(0), "0011100");
  EXPECT_EQ(q.seen(1), "0001110");
  EXPECT_EQ(q.seen(2), "0001101");
}

TEST(Masks, PackedBits) {
  const std::uint32_t words[4] = {0x80000001u, 0x2u, 0u, 0xffffffffu};
  const MaskView m{MaskKind::kPacked, words, 2, 1, 64};
  EXPECT_TRUE(m(0, 0));
  EXPECT_FALSE(m(0, 1));
  EXPECT_TRUE(m(0, 31));
  EXPECT_FALSE(m(0, 32));
  EXPECT_TRUE(m(0, 33));
  EXPECT_TRUE(m(1, 63));
  EXPECT_FALSE(m(1, 31));
  EXPECT_FALSE(m(1, 64));
}

TEST(Masks, PositionsAtTheEndsOfInt64DoNotOverflow) {
  OneSequence q(1, 3);
  q.place({INT64_MIN});
  q.p.window_left = INT64_MAX;
  EXPECT_EQ(q.seen(0), "111");
  q.place({INT64_MAX});
  q.p.window_left = 0;
  EXPECT_EQ(q.seen(0), "001");
}

TEST(Masks, RangesAndShortcutsAgreeWithVisible) {
  std::mt19937 random(11);
  const auto pick = [&](int lo, int hi) {
    return std::uniform_int_distribution<int>(lo, hi)(random);
  };
  for (int round = 0; round < 3000; ++round) {
    OneSequence q(pick(1, 6), pick(0, 12));
    q.p.causal = pick(0, 1) != 0;
    q.p.window_left = pick(-1, 6);
    if (pick(0, 1) != 0) {
      std::vector<std::uint8_t> bits(static_cast<std::size_t>(q.p.total_q * q.p.total_q));
      for (auto& b : bits) b = static_cast<std::uint8_t>(pick(0, 1));
      q.mask(bits);
    }
    if (pick(0, 1) != 0) {
      std::vector<std::int64_t> at(static_cast<std::size_t>(q.p.total_q));
      for (auto& x : at) x = pick(-2, 14);
      q.place(at);
    }
    const SequenceView s = load_sequence(q.p, 0);
    for (std::int64_t i = 0; i < s.m; ++i) {
      const RowMask row = load_row(q.p, s, i);
      for (std::int64_t key = 0; key < s.n; ++key) {
        if (!visible(q.p, s, row, key)) continue;
        ASSERT_GE(key, row_begin(s, row));
        ASSERT_LT(key, row_end(q.p, s, row));
      }
      const std::int64_t begin = pick(0, 12);
      const std::int64_t end = pick(0, 12);
      if (!sees_all(s, row, begin, end)) continue;
      for (std::int64_t key = begin; key < end; ++key) ASSERT_TRUE(visible(q.p, s, row, key));
    }
  }
}

}  // namespace
}  // namespace pagedecode
