// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// RoPE on read: rows are rotated in float32 before the kernel sees them. A position is 64 hi + lo:
// cos and sin of lo come from a table, those of hi are made once for each run of 64 positions, and
// the two are added as angles (error 2e-7), for a sine costs more than the row's whole arithmetic.
#pragma once

#include <cstdint>
#include <memory>

#include "cpu/kernel.h"
#include "rope.h"

namespace pagedecode::cpu {

inline constexpr int kMaxPairs = kMaxHeadDim / 2;
inline constexpr int kRotaryStep = 64;

// Depends on theta, scale and D alone.
struct RotaryTable {
  RotaryTable(const RopeParams& rope, std::int32_t head_dim);

  RopeParams rope;
  std::int32_t head_dim;
  double turns[kMaxPairs];
  float cos_lo[kRotaryStep][kMaxPairs];
  float sin_lo[kRotaryStep][kMaxPairs];
};

// The table of a call; the last few are kept. Null without RoPE.
std::shared_ptr<const RotaryTable> rotary_table(const RopeParams& rope, std::int32_t head_dim);

// One thread's rotator.
class Rotator {
 public:
  void use(const RotaryTable* table);
  // Rotates D float32 in place.
  void rotate(std::int64_t position, float* x);

 private:
  void angles_of(std::int64_t position);

  const RotaryTable* table_ = nullptr;
  std::int64_t hi_ = 0;
  std::int64_t position_ = 0;
  bool have_hi_ = false;
  bool have_position_ = false;
  float cos_hi_[kMaxPairs];
  float sin_hi_[kMaxPairs];
  float cos_[kMaxPairs];
  float sin_[kMaxPairs];
};

}  // namespace pagedecode::cpu
