// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Scalar conversions between float32 and the stored types, bit by bit, on any machine. To float32
// they are exact. From float32 they round to nearest even once; float16 and bfloat16 overflow to
// infinity as IEEE has it, float8 and int8 saturate; NaN stays NaN except in int8, where it is 0.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "pagedecode/types.h"

namespace pagedecode::cpu {

inline std::uint32_t bits_of(float x) {
  std::uint32_t u;
  std::memcpy(&u, &x, sizeof u);
  return u;
}

inline float float_of(std::uint32_t u) {
  float x;
  std::memcpy(&x, &u, sizeof x);
  return x;
}

// A binary float of 1 + kExp + kMan bits whose largest finite magnitude is kMax; where kInf, that
// overflows to infinity, else it saturates.
template <int kExp, int kMan, std::uint32_t kMaxFinite, std::uint32_t kNaN, bool kInf>
struct SmallFloat {
  static constexpr int kBias = (1 << (kExp - 1)) - 1;
  static constexpr int kShift = 23 - kMan;
  static constexpr std::uint32_t kSign = 1u << (kExp + kMan);

  // The bits of x; x is finite or not.
  static std::uint32_t encode(float x) {
    const std::uint32_t u = bits_of(x);
    const std::uint32_t sign = (u >> 31) ? kSign : 0;
    const std::uint32_t mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u) return sign | kNaN;
    std::uint32_t r;
    if (mag < static_cast<std::uint32_t>(128 - kBias) << 23) {
      // Denormal: a multiple of 2^(1 - bias - man); a carry lands on the first normal by itself.
      const float unit = float_of(static_cast<std::uint32_t>(127 + kBias - 1 + kMan) << 23);
      r = static_cast<std::uint32_t>(std::lrint(float_of(mag) * unit));
    } else {
      const std::uint32_t even = (mag >> kShift) & 1u;
      const std::uint32_t rounded = (mag + ((1u << (kShift - 1)) - 1) + even) >> kShift;
      r = rounded - (static_cast<std::uint32_t>(127 - kBias) << kMan);
      if (r > kMaxFinite) r = kInf ? kMaxFinite + 1 : kMaxFinite;
    }
    return sign | r;
  }

  static float decode(std::uint32_t h) {
    const std::uint32_t sign = (h & kSign) ? 0x80000000u : 0;
    const std::uint32_t mag = h & (kSign - 1);
    if (mag > kMaxFinite) {
      const bool inf = kInf && mag == kMaxFinite + 1;
      return float_of(sign | (inf ? 0x7f800000u : 0x7fc00000u));
    }
    if (mag < (1u << kMan)) {
      const float unit = float_of(static_cast<std::uint32_t>(127 + 1 - kBias - kMan) << 23);
      const float x = static_cast<float>(mag) * unit;
      return sign ? -x : x;
    }
    return float_of(sign | ((mag << kShift) + (static_cast<std::uint32_t>(127 - kBias) << 23)));
  }
};

using Half = SmallFloat<5, 10, 0x7bff, 0x7e00, true>;
using E4M3 = SmallFloat<4, 3, 0x7e, 0x7f, false>;

// NOTE: e5m2 has infinities, which decode; but what is stored saturates.
struct E5M2 : SmallFloat<5, 2, 0x7b, 0x7e, false> {
  static float decode(std::uint32_t h) { return Half::decode(h << 8); }
};

inline std::uint16_t to_bfloat16(float x) {
  const std::uint32_t u = bits_of(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((u >> 16) | 0x40u);
  return static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

inline std::int8_t to_int8(float x) {
  if (!(x == x)) return 0;
  const float clamped = x < -127.0f ? -127.0f : x > 127.0f ? 127.0f : x;
  return static_cast<std::int8_t>(std::lrint(clamped));
}

// How an element of a DType is stored, loaded and saved.
template <DType>
struct Stored;

template <>
struct Stored<DType::kFloat32> {
  using Bits = float;
  static float load(Bits x) { return x; }
  static Bits save(float x) { return x; }
};
template <>
struct Stored<DType::kFloat16> {
  using Bits = std::uint16_t;
  static float load(Bits x) { return Half::decode(x); }
  static Bits save(float x) { return static_cast<Bits>(Half::encode(x)); }
};
template <>
struct Stored<DType::kBFloat16> {
  using Bits = std::uint16_t;
  static float load(Bits x) { return float_of(static_cast<std::uint32_t>(x) << 16); }
  static Bits save(float x) { return to_bfloat16(x); }
};
template <>
struct Stored<DType::kFloat8E4M3> {
  using Bits = std::uint8_t;
  static float load(Bits x) { return E4M3::decode(x); }
  static Bits save(float x) { return static_cast<Bits>(E4M3::encode(x)); }
};
template <>
struct Stored<DType::kFloat8E5M2> {
  using Bits = std::uint8_t;
  static float load(Bits x) { return E5M2::decode(x); }
  static Bits save(float x) { return static_cast<Bits>(E5M2::encode(x)); }
};
template <>
struct Stored<DType::kInt8> {
  using Bits = std::int8_t;
  static float load(Bits x) { return static_cast<float>(x); }
  static Bits save(float x) { return to_int8(x); }
};

// Calls f with the Stored<> of a cache, query or output dtype.
template <class F>
void with_stored(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat32:
      return f(Stored<DType::kFloat32>{});
    case DType::kFloat16:
      return f(Stored<DType::kFloat16>{});
    case DType::kBFloat16:
      return f(Stored<DType::kBFloat16>{});
    case DType::kFloat8E4M3:
      return f(Stored<DType::kFloat8E4M3>{});
    case DType::kFloat8E5M2:
      return f(Stored<DType::kFloat8E5M2>{});
    default:
      return f(Stored<DType::kInt8>{});
  }
}

inline std::int64_t bytes_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return 4;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    default:
      return 1;
  }
}

// `count` elements from `src` on, as float32. Addresses need no alignment.
inline void load_row(DType dtype, const void* src, std::int64_t count, float* dst) {
  with_stored(dtype, [&](auto stored) {
    using S = decltype(stored);
    const char* at = static_cast<const char*>(src);
    for (std::int64_t i = 0; i < count; ++i) {
      typename S::Bits bits;
      std::memcpy(&bits, at + i * static_cast<std::int64_t>(sizeof bits), sizeof bits);
      dst[i] = S::load(bits);
    }
  });
}

// `count` float32 numbers, rounded once, to `dst` on.
inline void save_row(DType dtype, const float* src, std::int64_t count, void* dst) {
  with_stored(dtype, [&](auto stored) {
    using S = decltype(stored);
    char* at = static_cast<char*>(dst);
    for (std::int64_t i = 0; i < count; ++i) {
      const typename S::Bits bits = S::save(src[i]);
      std::memcpy(at + i * static_cast<std::int64_t>(sizeof bits), &bits, sizeof bits);
    }
  });
}

}  // namespace pagedecode::cpu
