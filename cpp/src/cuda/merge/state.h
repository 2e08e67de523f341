// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The state of a row over some keys: sum of exp2(x - ref) and of exp2(x - ref) v, where x is the
// logit in base 2 and ref any reference near the largest x. States of disjoint keys fold in order;
// (ref, sum) = (-inf, 0) is the neutral one. A NaN sum survives every fold.
#pragma once

#include <cmath>

#include "host_device.h"

namespace pagedecode::cuda {

PD_HOST_DEVICE float exp2_fast(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::exp2(x);
#endif
}

// exp2(ref - to), 1 when both are the same infinity.
PD_HOST_DEVICE float weight_of(float ref, float to) {
  return ref == to ? 1.0f : exp2_fast(ref - to);
}

struct SoftmaxState {
  float ref;
  float sum;
};

// What both sides' sums and accumulators are multiplied by.
struct FoldWeights {
  float left;
  float right;
};

PD_HOST_DEVICE FoldWeights fold(SoftmaxState& left, SoftmaxState right) {
  const float ref = fmaxf(left.ref, right.ref);
  const FoldWeights w{weight_of(left.ref, ref), weight_of(right.ref, ref)};
  left.sum = fmaf(right.sum, w.right, left.sum * w.left);
  left.ref = ref;
  return w;
}

inline constexpr float kLog2e = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

struct RowResult {
  float out_scale;  // out = accumulator * out_scale
  float lse;        // base e, or 2
};

// `sink` is a logit in base 2; -inf: none. It joins the denominator once, here.
PD_HOST_DEVICE RowResult finish(SoftmaxState s, float sink, bool base2) {
  const float ref = fmaxf(s.ref, sink);
  const float w = weight_of(s.ref, ref);
  const float sum = s.sum * w + (sink == -INFINITY ? 0.0f : weight_of(sink, ref));
  RowResult r;
  r.out_scale = s.sum == 0.0f ? 0.0f : w / sum;
  const float lse2 = sum == 0.0f ? -INFINITY : ref + log2f(sum);
  r.lse = base2 ? lse2 : lse2 * kLn2;
  return r;
}

}  // namespace pagedecode::cuda
