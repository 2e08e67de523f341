// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// 4 float32 lanes as a GCC/Clang vector: SSE2 on x86-64, NEON on arm64, scalars elsewhere. The
// other simd_*.h provide the same functions with their level's instructions.
#pragma once

#include <cstdint>
#include <cstring>

#include "pagedecode/types.h"

namespace {

using pagedecode::DType;

struct Simd {
  static constexpr int kWidth = 4;
  static constexpr int kRegisterVectors = 2;  // vectors of a row block: 4 rows x 2 of 16 registers
  using F = float __attribute__((vector_size(16)));
  using I = std::int32_t __attribute__((vector_size(16)));

  static F zero() { return F{}; }
  static F set1(float x) { return F{x, x, x, x}; }
  static F load(const float* p) {
    F x;
    std::memcpy(&x, p, sizeof x);
    return x;
  }
  static void store(float* p, F x) { std::memcpy(p, &x, sizeof x); }
  static F add(F a, F b) { return a + b; }
  static F sub(F a, F b) { return a - b; }
  static F mul(F a, F b) { return a * b; }
  static F div(F a, F b) { return a / b; }
  // a * b + c; rounds once only where the level has the instruction.
  static F fma(F a, F b, F c) { return a * b + c; }
  // b where either is NaN.
  static F max(F a, F b) { return choose(a > b, a, b); }
  static F abs(F a) { return reinterpret<F>(reinterpret<I>(a) & 0x7fffffff); }
  // magnitude >= 0
  static F copy_sign(F magnitude, F sign) {
    return reinterpret<F>(reinterpret<I>(magnitude) | (reinterpret<I>(sign) & INT32_MIN));
  }
  // a < b ? yes : no, lane by lane; no where either is NaN.
  static F less_select(F a, F b, F yes, F no) { return choose(a < b, yes, no); }
  // Bit i of `bits` chooses lane i of yes or no.
  static F bit_select(std::uint64_t bits, F yes, F no) {
    const I lane = {1, 2, 4, 8};
    const auto b = static_cast<std::int32_t>(bits & 0xf);
    return choose((I{b, b, b, b} & lane) == lane, yes, no);
  }
  // x * 2^n, where magic = 1.5 * 2^23 + n and the result is a normal number.
  static F shift_exponent(F x, F magic) {
    using U = std::uint32_t __attribute__((vector_size(16)));
    return reinterpret<F>(reinterpret<U>(x) + (reinterpret<U>(magic) << 23));
  }
  static float reduce_add(F x) { return (x[0] + x[2]) + (x[1] + x[3]); }
  static float reduce_max(F x) {
    const float a = x[0] > x[1] ? x[0] : x[1];
    const float b = x[2] > x[3] ? x[2] : x[3];
    return a > b ? a : b;
  }
  static void transpose(F (&r)[4]) {
    const F a = {r[0][0], r[1][0], r[2][0], r[3][0]};
    const F b = {r[0][1], r[1][1], r[2][1], r[3][1]};
    const F c = {r[0][2], r[1][2], r[2][2], r[3][2]};
    const F d = {r[0][3], r[1][3], r[2][3], r[3][3]};
    r[0] = a;
    r[1] = b;
    r[2] = c;
    r[3] = d;
  }

  // kWidth stored elements at p (any alignment) as float32, exactly.
  template <DType kType>
  static F load_as(const char* p) {
    if constexpr (kType == DType::kFloat32) {
      F x;
      std::memcpy(&x, p, sizeof x);
      return x;
    } else if constexpr (kType == DType::kFloat16) {
      std::uint16_t h[4];
      std::memcpy(h, p, sizeof h);
      return halves(I{h[0], h[1], h[2], h[3]});
    } else if constexpr (kType == DType::kBFloat16) {
      std::uint16_t h[4];
      std::memcpy(h, p, sizeof h);
      return reinterpret<F>(shift_up(I{h[0], h[1], h[2], h[3]}, 16));
    } else if constexpr (kType == DType::kInt8) {
      std::int8_t c[4];
      std::memcpy(c, p, sizeof c);
      return F{static_cast<float>(c[0]), static_cast<float>(c[1]), static_cast<float>(c[2]),
               static_cast<float>(c[3])};
    } else {
      std::uint8_t c[4];
      std::memcpy(c, p, sizeof c);
      const I x = {c[0], c[1], c[2], c[3]};
      if constexpr (kType == DType::kFloat8E5M2) return halves(x << 8);
      // The bits of a half that is 2^-8 of the value; its largest is this type's NaN.
      const I mag = (x & 0x7f) << 7;
      const I half = mag == 0x3f80 ? I{} + 0x7e00 : mag;
      return halves(half | (x & 0x80) << 8) * 256.0f;
    }
  }

  // kWidth elements to p, rounded to nearest even.
  template <DType kType>
  static void store_as(char* p, F x) {
    if constexpr (kType == DType::kFloat32) {
      std::memcpy(p, &x, sizeof x);
    } else {
      for (int i = 0; i < 4; ++i) {
        const std::uint16_t h = kType == DType::kFloat16 ? to_half(x[i]) : to_bfloat16(x[i]);
        std::memcpy(p + 2 * i, &h, sizeof h);
      }
    }
  }

 private:
  template <class To, class From>
  static To reinterpret(From x) {
    To y;
    std::memcpy(&y, &x, sizeof y);
    return y;
  }
  static F choose(I mask, F yes, F no) {
    return reinterpret<F>((reinterpret<I>(yes) & mask) | (reinterpret<I>(no) & ~mask));
  }
  static I shift_up(I x, int by) {
    using U = std::uint32_t __attribute__((vector_size(16)));
    return reinterpret<I>(reinterpret<U>(x) << by);
  }
  // float16 bits in each lane: exponent and mantissa moved up and rescaled by 2^112, which makes
  // denormals right, too; infinities and NaN get the full exponent.
  static F halves(I h) {
    const I mag = h & 0x7fff;
    const F scale = set1(0x1p+112f);
    // NOTE: not a product of a denormal float32, which would be slow: 0.5 * mantissa * 2^-23.
    const F normal = reinterpret<F>(mag << 13) * scale;
    const F tiny = __builtin_convertvector(mag, F) * 0x1p-24f;
    const F huge = reinterpret<F>((mag << 13) | 0x7f800000);
    const F x = choose(mag < 0x400, tiny, choose(mag >= 0x7c00, huge, normal));
    return reinterpret<F>(reinterpret<I>(x) | shift_up(h & 0x8000, 16));
  }
  static std::uint32_t bits(float x) {
    std::uint32_t u;
    std::memcpy(&u, &x, sizeof u);
    return u;
  }
  static std::uint16_t to_bfloat16(float x) {
    const std::uint32_t u = bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((u >> 16) | 0x40u);
    return static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  static std::uint16_t to_half(float x) {
    const std::uint32_t u = bits(x);
    const std::uint32_t sign = (u >> 16) & 0x8000u;
    const std::uint32_t mag = u & 0x7fffffffu;
    std::uint32_t r;
    if (mag > 0x7f800000u) {
      r = 0x7e00u;
    } else if (mag < 0x38800000u) {
      // Denormal: adding 2^23 units of 2^-24 lets the adder round.
      float y;
      std::memcpy(&y, &mag, sizeof y);
      r = bits(y + 0.5f) - 0x3f000000u;
    } else {
      r = (mag + 0xfffu + ((mag >> 13) & 1u)) >> 13;
      r -= 112u << 10;
      if (r > 0x7c00u) r = 0x7c00u;
    }
    return static_cast<std::uint16_t>(sign | r);
  }
};

}  // namespace
