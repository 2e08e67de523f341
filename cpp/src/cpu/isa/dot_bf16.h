// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// QK with vdpbf16ps, for a bfloat16 q over a cache whose elements bfloat16 holds exactly: half the
// staging of the float32 way. PV stays float32 (fma.h).
//
//   q (rows, padded D / 2) pairs of bfloat16    k (padded D / 2, kTileKeys) pairs
#pragma once

#include "cpu/isa/bfloat16.h"

namespace {

// NOTE: scratch is of floats; pairs of bfloat16 are copied in and out of them as 32 bits.
inline __m512bh as_bf16(__m512 x) { return reinterpret_cast<__m512bh>(x); }

void dot_load_q(const ItemArgs& a, const char* const* q_rows) {
  const int pairs = a.padded_dim / 2;
  for (int r = 0; r < a.rows; ++r) {
    for (int d = 0; d < a.padded_dim; d += 32) {
      const __m512i x = a.head_dim > d
                            ? load_bfloat16<DType::kBFloat16>(q_rows[r] + 2 * d, a.head_dim - d)
                            : _mm512_setzero_si512();
      Simd::store(a.state->q + r * pairs + d / 2, _mm512_castsi512_ps(x));
    }
  }
}

template <DType kType>
void dot_stage_k(const ItemArgs& a, const TileTask& t, const char* const* rows) {
  constexpr int kBytes = bytes_of_type(kType);
  const int keys = padded_keys(t);
  for (int j = 0; j < keys; j += 16) {
    for (int d = 0; d < a.head_dim; d += 32) {
      Simd::F block[16];
      for (int i = 0; i < 16; ++i) {
        block[i] =
            _mm512_castsi512_ps(load_bfloat16<kType>(rows[j + i] + d * kBytes, a.head_dim - d));
      }
      Simd::transpose(block);
      for (int i = 0; i < 16; ++i) {
        Simd::store(a.scratch->k + (d / 2 + i) * kTileKeys + j, block[i]);
      }
      prefetch_lines(*a.cursor, 16);
    }
  }
}

template <int kRows>
inline void dot_logits_block(const float* q, int pairs, const float* k, int count, float* s) {
  using S = Simd;
  S::F sum[kRows][4];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < 4; ++v) sum[r][v] = S::zero();
  }
  for (int d = 0; d < count; ++d) {
    __m512bh kd[4];
    for (int v = 0; v < 4; ++v) kd[v] = as_bf16(S::load(k + d * kTileKeys + v * 16));
    for (int r = 0; r < kRows; ++r) {
      const __m512bh x = as_bf16(S::set1(q[r * pairs + d]));
      for (int v = 0; v < 4; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], x, kd[v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < 4; ++v) S::store(s + r * kTileKeys + v * 16, sum[r][v]);
  }
}

void dot_logits(const ItemArgs& a, const TileTask&) {
  const int pairs = a.padded_dim / 2;
  int r = 0;
  auto block = [&](auto rows) {
    constexpr int kRows = decltype(rows)::kValue;
    dot_logits_block<kRows>(a.state->q + r * pairs, pairs, a.scratch->k, a.head_dim / 2,
                            a.scratch->s + r * kTileKeys);
    r += kRows;
  };
  while (a.rows - r >= 4) block(Rows<4>{});
  if (a.rows - r == 3) block(Rows<3>{});
  if (a.rows - r == 2) block(Rows<2>{});
  if (a.rows - r == 1) block(Rows<1>{});
}

}  // namespace
