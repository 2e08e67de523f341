// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The AMX instructions. NOTE: GCC's intrinsics of these do not tell the compiler which memory they
// read (its stores to a tile's source may then vanish or move), so they are written out here.
#pragma once

#include <cstdint>

namespace {

struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t bytes_a_row[16] = {};
  std::uint8_t rows[16] = {};
};

inline void tile_configure(const TileConfig& config) {
  __asm__ volatile("ldtilecfg %0" : : "m"(config));
}

inline void tile_release() { __asm__ volatile("tilerelease"); }

template <int kTile>
inline void tile_zero() {
  __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile));
}

// 16 rows of 64 bytes, `stride` bytes apart.
template <int kTile>
inline void tile_load(const void* p, std::int64_t stride) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(stride), "i"(kTile) : "memory");
}

template <int kTile>
inline void tile_store(void* p, std::int64_t stride) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(p), "r"(stride), "i"(kTile) : "memory");
}

// sum += a b
template <int kSum, int kA, int kB>
inline void tile_multiply() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
}

}  // namespace
