// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// 16 float32 lanes with AVX-512 F, BW, VL, DQ. See simd_baseline.h for what each function means.
#pragma once

// NOTE: GCC 12's own intrinsics look uninitialized to it (its bug 105593), wherever they are
// inlined.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "pagedecode/types.h"

namespace {

using pagedecode::DType;

struct Simd {
  static constexpr int kWidth = 16;
  static constexpr int kRegisterVectors = 4;  // vectors of a row block: 4 rows x 4 of 32 registers
  using F = __m512;

  static F zero() { return _mm512_setzero_ps(); }
  static F set1(float x) { return _mm512_set1_ps(x); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F abs(F a) { return _mm512_abs_ps(a); }
  static F copy_sign(F magnitude, F sign) {
    const __m512i mask = _mm512_set1_epi32(INT32_MIN);
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(mask, _mm512_castps_si512(sign),
                                                         _mm512_castps_si512(magnitude), 0xca));
  }
  static F less_select(F a, F b, F yes, F no) {
    return _mm512_mask_mov_ps(no, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), yes);
  }
  static F bit_select(std::uint64_t bits, F yes, F no) {
    return _mm512_mask_mov_ps(no, static_cast<__mmask16>(bits), yes);
  }
  static F shift_exponent(F x, F magic) {
    const __m512i n = _mm512_slli_epi32(_mm512_castps_si512(magic), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), n));
  }
  static float reduce_add(F x) { return _mm512_reduce_add_ps(x); }
  static float reduce_max(F x) { return _mm512_reduce_max_ps(x); }

  static void transpose(F (&r)[16]) {
    F t[16];
    for (int i = 0; i < 16; i += 4) {
      const F a = _mm512_unpacklo_ps(r[i], r[i + 1]);
      const F b = _mm512_unpackhi_ps(r[i], r[i + 1]);
      const F c = _mm512_unpacklo_ps(r[i + 2], r[i + 3]);
      const F d = _mm512_unpackhi_ps(r[i + 2], r[i + 3]);
      t[i] = unpack_lo64(a, c);
      t[i + 1] = unpack_hi64(a, c);
      t[i + 2] = unpack_lo64(b, d);
      t[i + 3] = unpack_hi64(b, d);
    }
    for (int i = 0; i < 4; ++i) {
      const F a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88);
      const F b = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
      const F c = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88);
      const F d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
      r[i] = _mm512_shuffle_f32x4(a, c, 0x88);
      r[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
      r[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
      r[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
  }

  template <DType kType>
  static F load_as(const char* p) {
    if constexpr (kType == DType::kFloat32) {
      return _mm512_loadu_ps(p);
    } else if constexpr (kType == DType::kFloat16) {
      return _mm512_cvtph_ps(load256(p));
    } else if constexpr (kType == DType::kBFloat16) {
      return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load256(p)), 16));
    } else if constexpr (kType == DType::kInt8) {
      return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load128(p)));
    } else if constexpr (kType == DType::kFloat8E5M2) {
      return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(load128(p)), 8));
    } else {
      // The bits of a half that is 2^-8 of the value; its largest is this type's NaN.
      const __m256i x = _mm256_cvtepu8_epi16(load128(p));
      const __m256i mag = _mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0x7f)), 7);
      const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0x80)), 8);
      const __mmask16 nan = _mm256_cmpeq_epi16_mask(mag, _mm256_set1_epi16(0x3f80));
      const __m256i half = _mm256_mask_mov_epi16(mag, nan, _mm256_set1_epi16(0x7e00));
      return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_or_si256(half, sign)), set1(256.0f));
    }
  }

  template <DType kType>
  static void store_as(char* p, F x) {
    if constexpr (kType == DType::kFloat32) {
      _mm512_storeu_ps(p, x);
    } else if constexpr (kType == DType::kFloat16) {
      store256(p, _mm512_maskz_cvtps_ph(0xffff, x, _MM_FROUND_TO_NEAREST_INT));
    } else {
      store256(p, to_bfloat16(x));
    }
  }

  // Nearest even; NaN stays NaN. (vcvtneps2bf16 would flush denormals, and needs another level.)
  static __m256i to_bfloat16(F x) {
    const __m512i u = _mm512_castps_si512(x);
    const __m512i even = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), even);
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i quiet = _mm512_or_si512(u, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(up, nan, quiet), 16));
  }

 private:
  static F unpack_lo64(F a, F b) {
    return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  }
  static F unpack_hi64(F a, F b) {
    return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  }
  static __m256i load256(const char* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static __m128i load128(const char* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  static void store256(char* p, __m256i x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x);
  }
};

}  // namespace
