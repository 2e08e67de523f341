// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// AVX-512: 32 stored elements as bfloat16, exactly (bfloat16, float8 and int8 all fit).
#pragma once

#include "cpu/isa/fma.h"

namespace {

constexpr bool fits_bfloat16(DType t) {
  return t == DType::kBFloat16 || t == DType::kFloat8E4M3 || t == DType::kFloat8E5M2 ||
         t == DType::kInt8;
}

inline __m512i as_bits(__m512i integers) {
  return _mm512_castps_si512(_mm512_cvtepi32_ps(integers));
}

// float8 bits in 16-bit lanes to bfloat16 bits. kMan mantissa bits; magnitudes below 2^kMan are
// denormal and come from a table.
template <DType kType>
inline __m512i widen_float8(__m512i x) {
  constexpr bool kE4M3 = kType == DType::kFloat8E4M3;
  const __m512i mag = _mm512_and_si512(x, _mm512_set1_epi16(0x7f));
  const __m512i sign = _mm512_slli_epi16(_mm512_and_si512(x, _mm512_set1_epi16(0x80)), 8);
  // Exponent bias 7 or 15 to 127.
  __m512i y = _mm512_add_epi16(_mm512_slli_epi16(mag, kE4M3 ? 4 : 5),
                               _mm512_set1_epi16(kE4M3 ? 120 << 7 : 112 << 7));
  // Denormals i * 2^-9 (e4m3), i * 2^-16 (e5m2), by index.
  const __m512i table =
      kE4M3 ? _mm512_castsi128_si512(
                  _mm_setr_epi16(0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60))
            : _mm512_castsi128_si512(_mm_setr_epi16(0, 0x3780, 0x3800, 0x3840, 0, 0, 0, 0));
  const __mmask32 denormal = _mm512_cmplt_epu16_mask(mag, _mm512_set1_epi16(kE4M3 ? 8 : 4));
  y = _mm512_mask_permutexvar_epi16(y, denormal, mag, table);
  if constexpr (kE4M3) {
    const __mmask32 nan = _mm512_cmpeq_epi16_mask(mag, _mm512_set1_epi16(0x7f));
    y = _mm512_mask_mov_epi16(y, nan, _mm512_set1_epi16(0x7fc0));
  } else {
    const __mmask32 special = _mm512_cmpgt_epu16_mask(mag, _mm512_set1_epi16(0x7b));
    const __m512i full = _mm512_or_si512(_mm512_slli_epi16(mag, 5), _mm512_set1_epi16(0x7000));
    y = _mm512_mask_mov_epi16(y, special, full);
  }
  return _mm512_or_si512(y, sign);
}

// Elements 0 .. 31 at p, those from `count` on as zeros and not read.
template <DType kType>
inline __m512i load_bfloat16(const char* p, int count) {
  const __mmask32 mask = count >= 32 ? ~__mmask32{0} : (__mmask32{1} << count) - 1;
  if constexpr (kType == DType::kBFloat16) {
    return _mm512_maskz_loadu_epi16(mask, p);
  } else {
    const __m256i bytes = _mm256_maskz_loadu_epi8(mask, p);
    if constexpr (kType == DType::kInt8) {
      const __m512i lo = _mm512_cvtepi8_epi32(_mm256_castsi256_si128(bytes));
      const __m512i hi = _mm512_cvtepi8_epi32(_mm256_extracti128_si256(bytes, 1));
      // The low halves of these floats are zero.
      const __m256i l = _mm512_cvtepi32_epi16(_mm512_srli_epi32(as_bits(lo), 16));
      const __m256i h = _mm512_cvtepi32_epi16(_mm512_srli_epi32(as_bits(hi), 16));
      return _mm512_inserti64x4(_mm512_castsi256_si512(l), h, 1);
    } else {
      return widen_float8<kType>(_mm512_cvtepu8_epi16(bytes));
    }
  }
}

}  // namespace
