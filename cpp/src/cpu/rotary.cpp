// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/rotary.h"

#include <cmath>
#include <mutex>
#include <vector>

namespace pagedecode::cpu {

RotaryTable::RotaryTable(const RopeParams& params, std::int32_t dim)
    : rope(params), head_dim(dim), turns(), cos_lo(), sin_lo() {
  for (std::int32_t t = 0; t < dim / 2; ++t) {
    turns[t] = rope_turns(rope, dim, t);
    for (int lo = 0; lo < kRotaryStep; ++lo) {
      const float angle = rope_angle(turns[t], lo);
      cos_lo[lo][t] = std::cos(angle);
      sin_lo[lo][t] = std::sin(angle);
    }
  }
}

std::shared_ptr<const RotaryTable> rotary_table(const RopeParams& rope, std::int32_t head_dim) {
  if (!rope.on) return nullptr;
  constexpr std::size_t kKept = 8;
  static std::mutex mutex;
  static std::vector<std::shared_ptr<const RotaryTable>> tables;  // oldest first

  const std::lock_guard<std::mutex> lock(mutex);
  for (const auto& t : tables) {
    if (t->head_dim == head_dim && t->rope.theta == rope.theta && t->rope.scale == rope.scale &&
        t->rope.interleaved == rope.interleaved) {
      return t;
    }
  }
  if (tables.size() == kKept) tables.erase(tables.begin());
  tables.push_back(std::make_shared<const RotaryTable>(rope, head_dim));
  return tables.back();
}

void Rotator::use(const RotaryTable* table) {
  table_ = table;
  have_hi_ = false;
  have_position_ = false;
}

void Rotator::angles_of(std::int64_t position) {
  const std::int64_t lo = position & (kRotaryStep - 1);
  const std::int64_t hi = position - lo;
  const int pairs = table_->head_dim / 2;
  if (!have_hi_ || hi != hi_) {
    for (int t = 0; t < pairs; ++t) {
      const float angle = rope_angle(table_->turns[t], hi);
      cos_hi_[t] = std::cos(angle);
      sin_hi_[t] = std::sin(angle);
    }
    hi_ = hi;
    have_hi_ = true;
  }
  const float* const cl = table_->cos_lo[lo];
  const float* const sl = table_->sin_lo[lo];
  for (int t = 0; t < pairs; ++t) {
    cos_[t] = cos_hi_[t] * cl[t] - sin_hi_[t] * sl[t];
    sin_[t] = sin_hi_[t] * cl[t] + cos_hi_[t] * sl[t];
  }
  position_ = position;
  have_position_ = true;
}

void Rotator::rotate(std::int64_t position, float* x) {
  if (!have_position_ || position != position_) angles_of(position);
  const int pairs = table_->head_dim / 2;
  if (table_->rope.interleaved) {
    for (int t = 0; t < pairs; ++t) {
      const float a = x[2 * t];
      const float b = x[2 * t + 1];
      x[2 * t] = a * cos_[t] - b * sin_[t];
      x[2 * t + 1] = b * cos_[t] + a * sin_[t];
    }
  } else {
    float* const y = x + pairs;
    for (int t = 0; t < pairs; ++t) {
      const float a = x[t];
      const float b = y[t];
      x[t] = a * cos_[t] - b * sin_[t];
      y[t] = b * cos_[t] + a * sin_[t];
    }
  }
}

}  // namespace pagedecode::cpu
