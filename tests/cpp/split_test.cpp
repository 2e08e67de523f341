// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "split.h"

#include "problems.h"

namespace pagedecode {
namespace {

TEST(Split, RangesAreDisjointInOrderAndCover) {
  for (std::int64_t tile : {1, 16, 64}) {
    for (std::int64_t begin : {0, 1, 15, 16, 63, 64, 100}) {
      for (std::int64_t end : {0, 1, 16, 17, 64, 100, 129, 1000}) {
        for (std::int64_t splits : {1, 2, 3, 7, 64}) {
          std::int64_t at = begin;
          for (std::int64_t s = 0; s < splits; ++s) {
            const KeyRange r = balanced_split(begin, end, tile, splits, s);
            if (r.begin >= r.end) continue;
            EXPECT_EQ(r.begin, at);
            EXPECT_TRUE(r.begin == begin || r.begin % tile == 0);
            EXPECT_TRUE(r.end == end || r.end % tile == 0);
            at = r.end;
          }
          EXPECT_EQ(at, max64(begin, end)) << tile << " " << begin << " " << end << " " << splits;
        }
      }
    }
  }
}

TEST(Split, SizesDifferByOneTileAtMost) {
  std::int64_t smallest = INT64_MAX;
  std::int64_t largest = 0;
  for (std::int64_t s = 0; s < 7; ++s) {
    const KeyRange r = balanced_split(0, 100 * 16, 16, 7, s);
    smallest = min64(smallest, r.end - r.begin);
    largest = max64(largest, r.end - r.begin);
  }
  EXPECT_LE(largest - smallest, 16);
}

TEST(Split, FixedBoundariesDoNotDependOnTheLength) {
  EXPECT_EQ(fixed_split(1000, 256, 1).begin, 256);
  EXPECT_EQ(fixed_split(1000, 256, 1).end, 512);
  EXPECT_EQ(fixed_split(1000, 256, 3).end, 1000);
  EXPECT_EQ(fixed_split(100, 256, 1).begin, fixed_split(100, 256, 1).end);
}

}  // namespace
}  // namespace pagedecode
