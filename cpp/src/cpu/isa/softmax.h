// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// One tile's logits to probabilities: scale, soft-cap, ALiBi, mask, running maximum, exponential.
// Needs a Simd (simd_*.h) before it.
//
//   s (rows, kTileKeys): <q, k> in, exp(logit - max) out, 0 where unseen
//
// A row's operations depend on its own logits only: unseen keys become -inf first, whatever they
// hold, and then add exact zeros.
#pragma once

#include "cpu/isa/prefetch.h"
#include "cpu/kernel.h"

namespace {

using pagedecode::cpu::ItemArgs;
using pagedecode::cpu::kTileKeys;
using pagedecode::cpu::RowState;
using pagedecode::cpu::Scratch;
using pagedecode::cpu::TileTask;

constexpr float kMinusInf = -__builtin_inff();

// exp(x) for x <= 0 to about 1 ulp (Cephes' polynomial); 0 below -87, so that no denormal arises,
// which would slow down what follows; NaN stays NaN.
inline __attribute__((always_inline)) Simd::F exp_negative(Simd::F x) {
  using S = Simd;
  const S::F low = S::set1(-87.0f);
  const S::F y = S::max(low, x);  // the second where either is NaN
  const S::F magic = S::add(S::mul(y, S::set1(1.44269504f)), S::set1(12582912.0f));
  const S::F n = S::sub(magic, S::set1(12582912.0f));
  S::F r = S::fma(n, S::set1(-0.693359375f), y);
  r = S::fma(n, S::set1(2.12194440e-4f), r);
  S::F p = S::set1(1.9875691500e-4f);
  p = S::fma(p, r, S::set1(1.3981999507e-3f));
  p = S::fma(p, r, S::set1(8.3334519073e-3f));
  p = S::fma(p, r, S::set1(4.1665795894e-2f));
  p = S::fma(p, r, S::set1(1.6666665459e-1f));
  p = S::fma(p, r, S::set1(5.0000001201e-1f));
  p = S::add(S::fma(S::mul(p, r), r, r), S::set1(1.0f));
  return S::less_select(x, low, S::zero(), S::shift_exponent(p, magic));
}

inline Simd::F tanh_of(Simd::F x) {
  using S = Simd;
  const S::F a = S::abs(x);
  // |x| < 0.625: x + x^3 P(x^2) (Cephes); else (1 - e) / (1 + e), e = exp(-2 |x|).
  const S::F z = S::mul(a, a);
  S::F p = S::set1(-5.70498872745e-3f);
  p = S::fma(p, z, S::set1(2.06390887954e-2f));
  p = S::fma(p, z, S::set1(-5.37397155531e-2f));
  p = S::fma(p, z, S::set1(1.33314422036e-1f));
  p = S::fma(p, z, S::set1(-3.33332819422e-1f));
  const S::F small = S::fma(S::mul(p, z), a, a);
  const S::F e = exp_negative(S::mul(a, S::set1(-2.0f)));
  const S::F large = S::div(S::sub(S::set1(1.0f), e), S::add(S::set1(1.0f), e));
  return S::copy_sign(S::less_select(a, S::set1(0.625f), small, large), x);
}

// Keys of a tile that the loops run over: whole vectors, and whole pairs of 16 keys.
inline int padded_keys(const TileTask& t) { return (t.keys + 31) & ~31; }

// bias[j] = slope * (pos(j) - pos(i)).
inline void alibi_bias(const ItemArgs& a, float slope, std::int64_t row_position, float* bias) {
  for (int j = 0; j < kTileKeys; ++j) {
    bias[j] = slope * static_cast<float>(a.key_positions[j] - row_position);
  }
}

inline void softmax_row(const ItemArgs& a, RowState& state, int row, int keys,
                        std::uint64_t visible) {
  using S = Simd;
  float* const s = a.scratch->s + row * kTileKeys;
  float bias[kTileKeys];
  if (a.alibi) alibi_bias(a, state.slope[row], a.row_positions[row], bias);

  const S::F scale = S::set1(a.logit_scale);
  const S::F minus_inf = S::set1(kMinusInf);
  S::F top = minus_inf;
  for (int j = 0; j < keys; j += S::kWidth) {
    S::F x = S::mul(S::load(s + j), scale);
    if (a.softcap > 0.0f) {
      x = S::mul(tanh_of(S::div(x, S::set1(a.softcap))), S::set1(a.softcap));
    }
    if (a.alibi) x = S::add(x, S::load(bias + j));
    x = S::bit_select(visible >> j, x, minus_inf);
    S::store(s + j, x);
    top = S::max(x, top);  // skips NaN, which the exponential keeps
  }
  const float old_max = state.max[row];
  const float tile_max = S::reduce_max(top);
  const float new_max = tile_max > old_max ? tile_max : old_max;
  // Nothing but -inf so far: any finite reference does.
  const float reference = new_max == kMinusInf ? 0.0f : new_max;

  const S::F ref = S::set1(reference);
  S::F sum = S::zero();
  for (int j = 0; j < keys; j += S::kWidth) {
    const S::F p = exp_negative(S::sub(S::load(s + j), ref));
    S::store(s + j, p);
    sum = S::add(sum, p);
  }
  float alpha = 1.0f;
  if (new_max != old_max) {
    float lanes[S::kWidth];
    S::store(lanes, exp_negative(S::set1(old_max - reference)));
    alpha = lanes[0];
  }
  state.max[row] = new_max;
  state.sum[row] = state.sum[row] * alpha + S::reduce_add(sum);
  a.scratch->alpha[row] = alpha;
}

void softmax(const ItemArgs& a, const TileTask& t) {
  RowState& state = *a.state;
  const int keys = padded_keys(t);
  for (int run = 0; run < t.num_runs; ++run) {
    const int end = t.runs[run].first + t.runs[run].count;
    for (int row = t.runs[run].first; row < end; ++row) {
      softmax_row(a, state, row, keys, t.runs[run].visible);
      prefetch_lines(*a.cursor, 16);
    }
  }
}

}  // namespace
