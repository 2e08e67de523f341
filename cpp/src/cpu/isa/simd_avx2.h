// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// 8 float32 lanes with AVX2, FMA, F16C. See simd_baseline.h for what each function means.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "pagedecode/types.h"

namespace {

using pagedecode::DType;

struct Simd {
  static constexpr int kWidth = 8;
  static constexpr int kRegisterVectors = 2;  // vectors of a row block: 4 rows x 2 of 16 registers
  using F = __m256;

  static F zero() { return _mm256_setzero_ps(); }
  static F set1(float x) { return _mm256_set1_ps(x); }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static F abs(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
  static F copy_sign(F magnitude, F sign) {
    return _mm256_or_ps(magnitude, _mm256_and_ps(_mm256_set1_ps(-0.0f), sign));
  }
  static F less_select(F a, F b, F yes, F no) {
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
  }
  static F bit_select(std::uint64_t bits, F yes, F no) {
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i set = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits & 0xff)), lane);
    return _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, lane)));
  }
  static F shift_exponent(F x, F magic) {
    const __m256i n = _mm256_slli_epi32(_mm256_castps_si256(magic), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), n));
  }
  static float reduce_add(F x) {
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
  }
  static float reduce_max(F x) {
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
  }

  static void transpose(F (&r)[8]) {
    F t[8];
    for (int i = 0; i < 8; i += 4) {
      const F a = _mm256_unpacklo_ps(r[i], r[i + 1]);
      const F b = _mm256_unpackhi_ps(r[i], r[i + 1]);
      const F c = _mm256_unpacklo_ps(r[i + 2], r[i + 3]);
      const F d = _mm256_unpackhi_ps(r[i + 2], r[i + 3]);
      t[i] = _mm256_shuffle_ps(a, c, 0x44);
      t[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
      t[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
      t[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
    for (int i = 0; i < 4; ++i) {
      r[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
      r[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
    }
  }

  template <DType kType>
  static F load_as(const char* p) {
    if constexpr (kType == DType::kFloat32) {
      return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
    } else if constexpr (kType == DType::kFloat16) {
      return _mm256_cvtph_ps(load128(p));
    } else if constexpr (kType == DType::kBFloat16) {
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p)), 16));
    } else if constexpr (kType == DType::kInt8) {
      return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load64(p)));
    } else if constexpr (kType == DType::kFloat8E5M2) {
      return _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(load64(p)), 8));
    } else {
      // The bits of a half that is 2^-8 of the value; its largest is this type's NaN.
      const __m128i x = _mm_cvtepu8_epi16(load64(p));
      const __m128i mag = _mm_slli_epi16(_mm_and_si128(x, _mm_set1_epi16(0x7f)), 7);
      const __m128i sign = _mm_slli_epi16(_mm_and_si128(x, _mm_set1_epi16(0x80)), 8);
      const __m128i nan = _mm_cmpeq_epi16(mag, _mm_set1_epi16(0x3f80));
      const __m128i half = _mm_blendv_epi8(mag, _mm_set1_epi16(0x7e00), nan);
      return _mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(half, sign)), set1(256.0f));
    }
  }

  template <DType kType>
  static void store_as(char* p, F x) {
    if constexpr (kType == DType::kFloat32) {
      _mm256_storeu_ps(reinterpret_cast<float*>(p), x);
    } else if constexpr (kType == DType::kFloat16) {
      store128(p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    } else {
      const __m256i u = _mm256_castps_si256(x);
      const __m256i even = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
      const __m256i up = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), even);
      const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
      const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
      const __m256i r = _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet, nan), 16);
      store128(p, _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1)));
    }
  }

 private:
  static __m128i load128(const char* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  static __m128i load64(const char* p) {
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  }
  static void store128(char* p, __m128i x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), x); }
};

}  // namespace
