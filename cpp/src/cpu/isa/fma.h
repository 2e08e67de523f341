// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The float32 way, for any dtypes: K is staged transposed, so that keys are the vector lanes of QK
// and no sum runs across lanes; V is staged as it lies, so that D is the lanes of PV. Each (row,
// key) logit and each (row, d) sum is one chain of fma in a fixed order, whatever the rows beside
// it.
//
//   q (rows, padded D)    k (padded D, kTileKeys)    s (rows, kTileKeys)
//   v (kTileKeys, padded D)    out (rows, padded D)
#pragma once

#include "cpu/isa/softmax.h"

namespace {

template <int kCount>
struct Rows {
  static constexpr int kValue = kCount;
};

// kWidth elements, or the 8 that are left of a row.
template <DType kType, int kBytes>
inline Simd::F load_part(const char* p, [[maybe_unused]] int count) {
  if constexpr (Simd::kWidth > 8) {
    if (count < Simd::kWidth) {
      char part[Simd::kWidth * kBytes] = {};
      std::memcpy(part, p, 8 * kBytes);
      return Simd::load_as<kType>(part);
    }
  }
  return Simd::load_as<kType>(p);
}

constexpr int bytes_of_type(DType t) {
  return t == DType::kFloat32 ? 4 : t == DType::kFloat16 || t == DType::kBFloat16 ? 2 : 1;
}

// One row to padded_dim float32, zeros at the end.
template <DType kType>
inline void widen_row(const char* src, int head_dim, int padded_dim, float* dst) {
  constexpr int kBytes = bytes_of_type(kType);
  int d = 0;
  for (; d < head_dim; d += Simd::kWidth) {
    Simd::store(dst + d, load_part<kType, kBytes>(src + d * kBytes, head_dim - d));
  }
  for (; d < padded_dim; d += Simd::kWidth) Simd::store(dst + d, Simd::zero());
}

template <DType kType>
void fma_load_q(const ItemArgs& a, const char* const* q_rows) {
  for (int r = 0; r < a.rows; ++r) {
    widen_row<kType>(q_rows[r], a.head_dim, a.padded_dim, a.state->q + r * a.padded_dim);
  }
}

template <DType kType>
void fma_stage_k(const ItemArgs& a, const TileTask& t, const char* const* rows) {
  constexpr int kBytes = bytes_of_type(kType);
  constexpr int kW = Simd::kWidth;
  float* const k = a.scratch->k;
  const int keys = padded_keys(t);
  for (int j = 0; j < keys; j += kW) {
    for (int d = 0; d < a.head_dim; d += kW) {
      Simd::F block[kW];
      for (int i = 0; i < kW; ++i) {
        block[i] = load_part<kType, kBytes>(rows[j + i] + d * kBytes, a.head_dim - d);
      }
      Simd::transpose(block);
      for (int i = 0; i < kW; ++i) Simd::store(k + (d + i) * kTileKeys + j, block[i]);
      prefetch_lines(*a.cursor, kW / 2);
    }
  }
}

template <int kRows, int kVectors>
inline void fma_logits_block(const float* q, int q_stride, const float* k, int head_dim, float* s) {
  using S = Simd;
  S::F sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sum[r][v] = S::zero();
  }
  for (int d = 0; d < head_dim; ++d) {
    S::F kd[kVectors];
    for (int v = 0; v < kVectors; ++v) kd[v] = S::load(k + d * kTileKeys + v * S::kWidth);
    for (int r = 0; r < kRows; ++r) {
      const S::F x = S::set1(q[r * q_stride + d]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = S::fma(x, kd[v], sum[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) S::store(s + r * kTileKeys + v * S::kWidth, sum[r][v]);
  }
}

void fma_logits(const ItemArgs& a, const TileTask& t) {
  constexpr int kVectors = Simd::kRegisterVectors;
  const float* const q = a.state->q;
  const int keys = padded_keys(t);
  for (int j = 0; j < keys; j += kVectors * Simd::kWidth) {
    int r = 0;
    auto block = [&](auto rows) {
      fma_logits_block<decltype(rows)::kValue, kVectors>(q + r * a.padded_dim, a.padded_dim,
                                                         a.scratch->k + j, a.head_dim,
                                                         a.scratch->s + r * kTileKeys + j);
      r += decltype(rows)::kValue;
    };
    while (a.rows - r >= 4) block(Rows<4>{});
    if (a.rows - r == 3) block(Rows<3>{});
    if (a.rows - r == 2) block(Rows<2>{});
    if (a.rows - r == 1) block(Rows<1>{});
  }
}

template <DType kType>
void fma_stage_v(const ItemArgs& a, const TileTask& t, const char* const* rows) {
  for (int j = 0; j < t.keys; ++j) {
    widen_row<kType>(rows[j], a.head_dim, a.padded_dim, a.scratch->v + j * a.padded_dim);
    prefetch_lines(*a.cursor, 4);
  }
}

// out[r] = out[r] * alpha[r] + sum over the listed keys of p[r][key] * v[key], for a few rows and
// kVectors vectors of D.
template <int kRows, int kVectors>
inline void fma_accumulate_block(const float* p, const float* v, int dim, const unsigned char* list,
                                 int count, const float* alpha, float* out) {
  using S = Simd;
  S::F sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    const S::F scale = S::set1(alpha[r]);
    for (int x = 0; x < kVectors; ++x) {
      sum[r][x] = S::mul(S::load(out + r * dim + x * S::kWidth), scale);
    }
  }
  for (int i = 0; i < count; ++i) {
    const int key = list[i];
    S::F vk[kVectors];
    for (int x = 0; x < kVectors; ++x) vk[x] = S::load(v + key * dim + x * S::kWidth);
    for (int r = 0; r < kRows; ++r) {
      const S::F w = S::set1(p[r * kTileKeys + key]);
      for (int x = 0; x < kVectors; ++x) sum[r][x] = S::fma(w, vk[x], sum[r][x]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int x = 0; x < kVectors; ++x) S::store(out + r * dim + x * S::kWidth, sum[r][x]);
  }
}

// The rows of one run: a key that they do not see is not touched.
void fma_accumulate(const ItemArgs& a, const TileTask& t, const char* const*) {
  constexpr int kVectors = Simd::kRegisterVectors;
  constexpr int kStep = kVectors * Simd::kWidth;
  RowState& state = *a.state;
  const int dim = a.padded_dim;
  for (int run = 0; run < t.num_runs; ++run) {
    unsigned char list[kTileKeys];
    int count = 0;
    for (int j = 0; j < t.keys; ++j) {
      list[count] = static_cast<unsigned char>(j);
      count += (t.runs[run].visible >> j) & 1;
    }
    if (count == 0) continue;
    const int end = t.runs[run].first + t.runs[run].count;
    for (int d = 0; d < dim; d += kStep) {
      int r = t.runs[run].first;
      auto block = [&](auto rows, auto vectors, int at) {
        constexpr int kRows = decltype(rows)::kValue;
        fma_accumulate_block<kRows, decltype(vectors)::kValue>(
            a.scratch->s + r * kTileKeys, a.scratch->v + at, dim, list, count, a.scratch->alpha + r,
            state.out + r * dim + at);
      };
      auto step = [&](auto rows) {
        if (dim - d >= kStep) {
          block(rows, Rows<kVectors>{}, d);
        } else {
          for (int at = d; at < dim; at += Simd::kWidth) block(rows, Rows<1>{}, at);
        }
        r += decltype(rows)::kValue;
      };
      while (end - r >= 4) step(Rows<4>{});
      if (end - r == 3) step(Rows<3>{});
      if (end - r == 2) step(Rows<2>{});
      if (end - r == 1) step(Rows<1>{});
    }
  }
}

}  // namespace
