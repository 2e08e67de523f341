// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// A core has 16 line fills in flight; at about 100 ns each they are the bandwidth that it gets, so
// they must be busy all the time, and a line should need one of them once. So: into L1, half a tile
// ahead, a few lines in every turn of the kernels' loops. Measured against a plain read (1.0): no
// prefetch 0.45, bursts between the steps 0.42, the next tile into L2 0.52, this 0.7.
#pragma once

#include "cpu/kernel.h"

namespace {

using pagedecode::cpu::LineCursor;

inline void prefetch_lines(LineCursor& c, int count) {
  for (; count > 0; --count) {
    if (c.at >= c.end) {
      if (c.next == c.last) return;
      c.at = *c.next++;
      c.end = c.at + c.bytes;
    }
    __builtin_prefetch(c.at, 0, 3);
    c.at += 64;
  }
}

}  // namespace
