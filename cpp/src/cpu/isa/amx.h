// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// AMX tiles for 16-bit q over caches whose elements bfloat16 holds exactly. QK (q bfloat16) and PV
// are tdpbf16ps: 16 x 16 float32 += (16 x 32 bfloat16) (32 x 16 bfloat16), in 16 clocks. A
// probability is the sum of two bfloat16 (17 bits), so that PV is as good as in float32.
//
//   k (kTileKeys, padded D) bfloat16: a tile's A operand as it lies, no transposition
//   q (padded D / 2, 64 rows) pairs: the B operand
//   v (kTileKeys / 2, padded D) pairs of keys: the B operand
//   p_hi, p_lo (rows, kTileKeys) bfloat16: the A operand
//   out (64 rows, padded D): the accumulator, row-major
//
// NOTE: these instructions take denormal bfloat16 (below 1.2e-38) for zero.
// Rows beyond the item's are zeros or nobody's. One accumulator element is one chain of products
// in key order, so a row's bits do not depend on the rows beside it.
#pragma once

#include "cpu/isa/amx_tiles.h"
#include "cpu/isa/bfloat16.h"

namespace {

constexpr int kAmxRows = 64;

// All eight tiles: 16 rows of 64 bytes.
void amx_begin() {
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    config.bytes_a_row[i] = 64;
    config.rows[i] = 16;
  }
  tile_configure(config);
}

void amx_end() { tile_release(); }

void amx_load_q(const ItemArgs& a, const char* const* q_rows) {
  // Pairs of one row go down one column.
  for (int r0 = 0; r0 < a.rows; r0 += 16) {
    for (int d = 0; d < a.padded_dim; d += 32) {
      Simd::F block[16];
      for (int i = 0; i < 16; ++i) {
        const bool real = r0 + i < a.rows && d < a.head_dim;
        block[i] = _mm512_castsi512_ps(
            real ? load_bfloat16<DType::kBFloat16>(q_rows[r0 + i] + 2 * d, a.head_dim - d)
                 : _mm512_setzero_si512());
      }
      Simd::transpose(block);
      for (int i = 0; i < 16; ++i) {
        Simd::store(a.state->q + (d / 2 + i) * kAmxRows + r0, block[i]);
      }
    }
  }
}

// Whether 16 rows lie at one distance from each other.
inline bool evenly_spaced(const char* const* rows) {
  const std::int64_t step = rows[1] - rows[0];
  bool even = true;
  for (int i = 2; i < 16; ++i) even &= rows[i] - rows[i - 1] == step;
  return even;
}

template <DType kType>
void amx_stage_k(const ItemArgs& a, const TileTask& t, const char* const* rows) {
  constexpr int kBytes = bytes_of_type(kType);
  const int keys = padded_keys(t);
  Scratch& sc = *a.scratch;
  for (int block = 0; block < keys / 16; ++block, rows += 16) {
    if (kType == DType::kBFloat16 && a.head_dim == a.padded_dim && evenly_spaced(rows)) {
      // A page's rows are a tile as they lie.
      sc.k_block[block] = rows[0];
      sc.k_stride[block] = rows[1] - rows[0];
      continue;
    }
    char* k = reinterpret_cast<char*>(sc.k) + block * 16 * a.padded_dim * 2;
    sc.k_block[block] = k;
    sc.k_stride[block] = a.padded_dim * 2;
    for (int j = 0; j < 16; ++j) {
      for (int d = 0; d < a.padded_dim; d += 32, k += 64) {
        const int n = a.head_dim - d;
        _mm512_store_si512(
            k, n > 0 ? load_bfloat16<kType>(rows[j] + d * kBytes, n) : _mm512_setzero_si512());
      }
      prefetch_lines(*a.cursor, 2);
    }
  }
}

void amx_logits(const ItemArgs& a, const TileTask& t) {
  const Scratch& sc = *a.scratch;
  const float* const q = a.state->q;
  const int keys = padded_keys(t);
  float* const st = a.scratch->spare;  // (kTileKeys, 16 rows)
  for (int r0 = 0; r0 < a.rows; r0 += 16) {
    tile_zero<0>();
    tile_zero<1>();
    tile_zero<2>();
    tile_zero<3>();
    for (int d = 0; d < a.padded_dim; d += 32) {
      tile_load<6>(q + d / 2 * kAmxRows + r0, kAmxRows * 4);
      tile_load<4>(sc.k_block[0] + 2 * d, sc.k_stride[0]);
      tile_multiply<0, 4, 6>();
      prefetch_lines(*a.cursor, 12);
      tile_load<5>(sc.k_block[1] + 2 * d, sc.k_stride[1]);
      tile_multiply<1, 5, 6>();
      prefetch_lines(*a.cursor, 12);
      if (keys <= 32) continue;
      tile_load<4>(sc.k_block[2] + 2 * d, sc.k_stride[2]);
      tile_multiply<2, 4, 6>();
      prefetch_lines(*a.cursor, 12);
      tile_load<5>(sc.k_block[3] + 2 * d, sc.k_stride[3]);
      tile_multiply<3, 5, 6>();
      prefetch_lines(*a.cursor, 12);
    }
    tile_store<0>(st, 64);
    tile_store<1>(st + 16 * 16, 64);
    tile_store<2>(st + 32 * 16, 64);
    tile_store<3>(st + 48 * 16, 64);
    const int rows = a.rows - r0 < 16 ? a.rows - r0 : 16;
    for (int j = 0; j < keys; j += 16) {
      Simd::F block[16];
      for (int i = 0; i < 16; ++i) block[i] = Simd::load(st + (j + i) * 16);
      Simd::transpose(block);
      for (int i = 0; i < rows; ++i) {
        Simd::store(a.scratch->s + (r0 + i) * kTileKeys + j, block[i]);
      }
    }
  }
}

// softmax, then the probabilities as two bfloat16 each, and the rescaling of out.
void amx_softmax(const ItemArgs& a, const TileTask& t) {
  softmax(a, t);
  const int keys = padded_keys(t);
  for (int r = 0; r < a.rows; ++r) {
    const float* const s = a.scratch->s + r * kTileKeys;
    for (int j = 0; j < keys; j += 16) {
      const __m512 p = _mm512_load_ps(s + j);
      const __m256i hi = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(p));
      const __m512 hi32 = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(hi), 16));
      const __m256i lo = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_sub_ps(p, hi32)));
      _mm256_store_si256(reinterpret_cast<__m256i*>(a.scratch->p_hi + r * kTileKeys + j), hi);
      _mm256_store_si256(reinterpret_cast<__m256i*>(a.scratch->p_lo + r * kTileKeys + j), lo);
    }
    const float alpha = a.scratch->alpha[r];
    if (alpha == 1.0f) continue;
    float* const out = a.state->out + r * a.padded_dim;
    for (int d = 0; d < a.padded_dim; d += 16) {
      _mm512_store_ps(out + d, _mm512_mul_ps(_mm512_load_ps(out + d), _mm512_set1_ps(alpha)));
    }
  }
}

// Sets the top bit of lanes whose bfloat16 is not finite.
inline __m512i above_finite(__m512i x) {
  return _mm512_add_epi16(_mm512_and_si512(x, _mm512_set1_epi16(0x7fff)), _mm512_set1_epi16(0x80));
}

// NOTE: hi * inf + lo * inf is NaN where lo is zero or negative, so rows that see an infinity of V
// do without lo. A NaN is a NaN either way.
constexpr bool has_infinity(DType t) { return t == DType::kBFloat16 || t == DType::kFloat8E5M2; }

// Keys 2 i and 2 i + 1 side by side; `seen` leaves zeros for the other keys. Returns whether a seen
// key of `suspects` holds an infinity or a NaN.
template <DType kType>
inline bool amx_stage_pairs(const ItemArgs& a, const char* const* rows, int keys,
                            std::uint64_t seen, std::uint64_t suspects) {
  constexpr int kBytes = bytes_of_type(kType);
  const __m512i order_lo = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i order_hi = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  const __m512i none = _mm512_setzero_si512();
  float* v = a.scratch->v;
  __m512i overflow = none;  // top bit of a lane: its exponent was all ones
  for (int j = 0; j < keys; j += 2) {
    const auto bits = static_cast<unsigned>(seen >> j) & 3u;
    const bool doubt = (suspects >> j & bits) != 0;
    for (int d = 0; d < a.padded_dim; d += 32, v += 32) {
      const int n = a.head_dim - d;
      const bool real = n > 0;
      const __m512i even =
          real && (bits & 1) ? load_bfloat16<kType>(rows[j] + d * kBytes, n) : none;
      const __m512i odd =
          real && (bits & 2) ? load_bfloat16<kType>(rows[j + 1] + d * kBytes, n) : none;
      const __m512i lo = _mm512_unpacklo_epi16(even, odd);
      const __m512i hi = _mm512_unpackhi_epi16(even, odd);
      _mm512_store_si512(v, _mm512_permutex2var_epi64(lo, order_lo, hi));
      _mm512_store_si512(v + 16, _mm512_permutex2var_epi64(lo, order_hi, hi));
      prefetch_lines(*a.cursor, 1);
      if (doubt) {
        overflow =
            _mm512_or_si512(overflow, _mm512_or_si512(above_finite(even), above_finite(odd)));
      }
    }
  }
  return _mm512_movepi16_mask(overflow) != 0;
}

// out (16 rows, padded D) += p (16 rows, kTileKeys) v, with p = hi + lo, or hi where lo is null.
inline void amx_accumulate_block(LineCursor& cursor, const std::uint16_t* hi,
                                 const std::uint16_t* lo, const float* v, int keys, int dim,
                                 float* out) {
  constexpr int kPStride = kTileKeys * 2;
  const int stride = dim * 4;
  int d = 0;
  for (; d + 64 <= dim; d += 64) {
    tile_load<0>(out + d, stride);
    tile_load<1>(out + d + 16, stride);
    tile_load<2>(out + d + 32, stride);
    tile_load<3>(out + d + 48, stride);
    for (int j = 0; j < keys; j += 32) {
      const float* const vd = v + j / 2 * dim + d;
      tile_load<4>(hi + j, kPStride);
      tile_load<6>(vd, stride);
      tile_multiply<0, 4, 6>();
      tile_load<7>(vd + 16, stride);
      tile_multiply<1, 4, 7>();
      if (lo != nullptr) {
        tile_load<5>(lo + j, kPStride);
        tile_multiply<0, 5, 6>();
        tile_multiply<1, 5, 7>();
      }
      tile_load<6>(vd + 32, stride);
      tile_multiply<2, 4, 6>();
      tile_load<7>(vd + 48, stride);
      tile_multiply<3, 4, 7>();
      if (lo != nullptr) {
        tile_multiply<2, 5, 6>();
        tile_multiply<3, 5, 7>();
      }
      prefetch_lines(cursor, 32);
    }
    tile_store<0>(out + d, stride);
    tile_store<1>(out + d + 16, stride);
    tile_store<2>(out + d + 32, stride);
    tile_store<3>(out + d + 48, stride);
  }
  if (d == dim) return;
  tile_load<0>(out + d, stride);
  tile_load<1>(out + d + 16, stride);
  for (int j = 0; j < keys; j += 32) {
    const float* const vd = v + j / 2 * dim + d;
    tile_load<4>(hi + j, kPStride);
    tile_load<6>(vd, stride);
    tile_multiply<0, 4, 6>();
    tile_load<7>(vd + 16, stride);
    tile_multiply<1, 4, 7>();
    if (lo == nullptr) continue;
    tile_load<5>(lo + j, kPStride);
    tile_multiply<0, 5, 6>();
    tile_multiply<1, 5, 7>();
  }
  tile_store<0>(out + d, stride);
  tile_store<1>(out + d + 16, stride);
}

// The rows of one run alone, over its own keys: for tiles in which V is not finite where only some
// rows see it (its product with a zero would be NaN), or infinite.
template <DType kType>
void amx_accumulate_run(const ItemArgs& a, const TileTask& t, const char* const* rows, int run) {
  const int dim = a.padded_dim;
  const int keys = padded_keys(t);
  Scratch& sc = *a.scratch;
  const std::uint64_t visible = t.runs[run].visible;
  const bool infinite =
      has_infinity(kType) && amx_stage_pairs<kType>(a, rows, keys, visible, visible);
  if (!has_infinity(kType)) amx_stage_pairs<kType>(a, rows, keys, visible, 0);
  const int end = t.runs[run].first + t.runs[run].count;
  float* const out = sc.spare;  // (16 rows, padded D)
  alignas(64) std::uint16_t hi[16 * kTileKeys];
  alignas(64) std::uint16_t lo[16 * kTileKeys];
  for (int r = t.runs[run].first; r < end; r += 16) {
    const int count = end - r < 16 ? end - r : 16;
    std::memset(hi, 0, sizeof hi);
    std::memset(lo, 0, sizeof lo);
    std::memset(out, 0, sizeof(float) * 16 * dim);
    std::memcpy(hi, sc.p_hi + r * kTileKeys, sizeof(std::uint16_t) * kTileKeys * count);
    std::memcpy(lo, sc.p_lo + r * kTileKeys, sizeof(std::uint16_t) * kTileKeys * count);
    float* const from = a.state->out + r * dim;
    std::memcpy(out, from, sizeof(float) * dim * count);
    amx_accumulate_block(*a.cursor, hi, infinite ? nullptr : lo, sc.v, keys, dim, out);
    std::memcpy(from, out, sizeof(float) * dim * count);
  }
}

template <DType kType>
void amx_stage_v(const ItemArgs& a, const TileTask& t, const char* const* rows) {
  const std::uint64_t suspects = has_infinity(kType) ? t.seen : t.seen & ~t.seen_by_all;
  a.scratch->v_not_finite = amx_stage_pairs<kType>(a, rows, padded_keys(t), t.seen, suspects);
}

template <DType kType>
void amx_accumulate(const ItemArgs& a, const TileTask& t, const char* const* rows) {
  if (a.scratch->v_not_finite) {
    for (int run = 0; run < t.num_runs; ++run) {
      if (t.runs[run].visible != 0) amx_accumulate_run<kType>(a, t, rows, run);
    }
    return;
  }
  for (int r = 0; r < a.rows; r += 16) {
    amx_accumulate_block(*a.cursor, a.scratch->p_hi + r * kTileKeys,
                         a.scratch->p_lo + r * kTileKeys, a.scratch->v, padded_keys(t),
                         a.padded_dim, a.state->out + r * a.padded_dim);
  }
}

}  // namespace
