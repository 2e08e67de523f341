// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Rotary angles. Pair t at position p turns by p / scale * theta^(-2 t / D). At position 2^17 a
// float32 product is off by 1e-2 and more, so the angle is made and reduced in float64, and only
// what is left of it, in [-pi, pi], goes to float32 (error 2^-24 pi).
#pragma once

#include <cmath>
#include <cstdint>

#include "problem.h"

namespace pagedecode {

// Turns per unit of position, of pair t: angle / (2 pi) at position 1.
PD_HOST_DEVICE double rope_turns(const RopeParams& rope, std::int32_t head_dim, std::int32_t t) {
  const double exponent = -2.0 * t / head_dim;
  return pow(rope.theta, exponent) / rope.scale * 0.15915494309189533577;
}

// The angle at a position, reduced to [-pi, pi].
PD_HOST_DEVICE float rope_angle(double turns_per_position, std::int64_t position) {
  const double turns = turns_per_position * static_cast<double>(position);
  return static_cast<float>((turns - rint(turns)) * 6.28318530717958647693);
}

// Element of the first and the second member of pair t.
PD_HOST_DEVICE std::int32_t rope_first(const RopeParams& rope, std::int32_t t) {
  return rope.interleaved ? 2 * t : t;
}
PD_HOST_DEVICE std::int32_t rope_second(const RopeParams& rope, std::int32_t head_dim,
                                        std::int32_t t) {
  return rope.interleaved ? 2 * t + 1 : t + head_dim / 2;
}

}  // namespace pagedecode
