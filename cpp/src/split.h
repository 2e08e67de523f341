// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Cutting the keys of a sequence into splits. A split is a range of whole tiles; ranges of one
// sequence are disjoint, in order, and cover it. Partial states merge in split order.
#pragma once

#include <cstdint>

#include "sequence.h"

namespace pagedecode {

struct KeyRange {
  std::int64_t begin;
  std::int64_t end;
};

// Split `s` of `splits` over keys [begin, end), in tiles of `tile` keys counted from key 0 (so that
// a tile's keys do not depend on where a window begins); sizes differ by one tile at most.
PD_HOST_DEVICE KeyRange balanced_split(std::int64_t begin, std::int64_t end, std::int64_t tile,
                                       std::int64_t splits, std::int64_t s) {
  const std::int64_t first = begin / tile;
  const std::int64_t tiles = max64(ceil_div64(end, tile) - first, 0);
  const std::int64_t lo = (first + tiles * s / splits) * tile;
  const std::int64_t hi = (first + tiles * (s + 1) / splits) * tile;
  return {max64(min64(lo, end), begin), max64(min64(hi, end), begin)};
}

// Split `s` by fixed absolute boundaries: keys [s * keys, (s + 1) * keys), whatever the sequence.
PD_HOST_DEVICE KeyRange fixed_split(std::int64_t end, std::int64_t keys, std::int64_t s) {
  return {min64(s * keys, end), min64((s + 1) * keys, end)};
}

}  // namespace pagedecode
