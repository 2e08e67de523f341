// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The compiled wgmma kernels and which problems they are for, as data. A new row is one line here
// and one file in instances/.
#pragma once

#include <cstdint>

#include "cuda/device.h"
#include "cuda/policy.h"
#include "cuda/variants.h"

namespace pagedecode::cuda {

struct WgmmaVariant {
  const char* name;
  DType element;  // of the matrix products; 1-byte caches take q of either 16-bit type
  CacheKind cache;
  int head_dim;
  int rows;           // query rows (m x group) of a tile: N of the products
  int stages;         // of 64 keys of K and V: 32 KB, or 16 KB of 1-byte caches
  int blocks_per_sm;  // of 160 threads: 2 leave 168 registers a thread, 3 leave 128
};

inline constexpr int kWgmmaKeys = 64;  // of a tile: M of S^T = K Q^T
inline constexpr int kWgmmaWorks = 4;  // ring of Work

// Bytes of a row of K or V that lie together in shared memory: what a TMA box holds of a token.
constexpr int wgmma_part_bytes(int head_dim, bool one_byte) {
  return one_byte && head_dim < 128 ? 64 : 128;
}

inline constexpr WgmmaVariant kWgmmaVariants[] = {
    {"bf16_d128_r8", DType::kBFloat16, CacheKind::kSame, 128, 8, 3, 2},
    {"bf16_d128_r16", DType::kBFloat16, CacheKind::kSame, 128, 16, 3, 2},
    {"bf16_d128_r32", DType::kBFloat16, CacheKind::kSame, 128, 32, 2, 2},
    {"bf16_d128_r64", DType::kBFloat16, CacheKind::kSame, 128, 64, 2, 2},
    {"fp16_d128_r16", DType::kFloat16, CacheKind::kSame, 128, 16, 3, 2},
    {"fp16_d128_r64", DType::kFloat16, CacheKind::kSame, 128, 64, 2, 2},
    // 64 rows of 1-byte caches leave no registers for their converted keys (serialised
    // products, 4.8 x the ceiling): they take two passes of 32.
    {"e4m3_d128_r8", DType::kFloat16, CacheKind::kE4M3, 128, 8, 4, 3},
    {"e4m3_d128_r16", DType::kFloat16, CacheKind::kE4M3, 128, 16, 4, 3},
    {"e4m3_d128_r32", DType::kFloat16, CacheKind::kE4M3, 128, 32, 5, 2},
    {"bytes_d128_r32", DType::kFloat16, CacheKind::kBytes, 128, 32, 5, 2},
};
inline constexpr int kNumWgmmaVariants = sizeof(kWgmmaVariants) / sizeof(kWgmmaVariants[0]);

constexpr int find_wgmma_variant(const char* name) {
  for (int i = 0; i < kNumWgmmaVariants; ++i) {
    if (same_text(kWgmmaVariants[i].name, name)) return i;
  }
  return -1;
}

struct WgmmaChoice {
  int variant = -1;          // of kWgmmaVariants
  const char* why_not = "";  // with -1
};

// Strides that a tensor map can hold: multiples of 16 bytes, below 2^40.
inline bool tensor_map_takes(const DecodeProblem& p, const CacheView& c) {
  const std::int64_t size = is_one_byte(c.dtype) ? 1 : 2;
  const auto fits = [&](std::int64_t stride, std::int64_t extent) {
    return extent == 1 ||
           (stride > 0 && stride * size % 16 == 0 && stride * size < INT64_C(1) << 40);
  };
  return reinterpret_cast<std::uintptr_t>(c.data) % 16 == 0 &&
         fits(c.page_stride, p.pages.num_pages) && fits(c.token_stride, p.page_size) &&
         fits(c.head_stride, p.num_kv_heads);
}

// The variant for tiles of `rows` query rows: the one of fewest rows that holds them, else the
// largest, in several passes whose loads meet in L2.
inline WgmmaChoice choose_wgmma(const DecodeProblem& p, const DeviceInfo& device,
                                std::int64_t rows) {
  const CacheKind cache = cache_kind(p.q.dtype, p.k.dtype, p.v.dtype, p.rope.on);
  WgmmaChoice choice;
  const auto no = [&](const char* why) {
    choice.why_not = why;
    return choice;
  };
  if (device.cc_major != 9 || device.cc_minor != 0) return no("wgmma needs compute capability 9.0");
  if (p.rope.on) return no("no wgmma with RoPE on read");
  if (p.batch_invariant) return no("no wgmma with batch_invariant");
  if (cache == CacheKind::kAny) return no("no wgmma for caches of two kinds");
  if (p.page_size % 16 != 0) return no("wgmma needs pages of a multiple of 16 tokens");
  if (p.pages.num_pages < 1 || p.pages.num_pages > INT32_MAX) return no("no wgmma for this pool");
  if (!tensor_map_takes(p, p.k) || !tensor_map_takes(p, p.v)) {
    return no("wgmma needs cache strides of multiples of 16 bytes");
  }
  for (int i = 0; i < kNumWgmmaVariants; ++i) {
    const WgmmaVariant& v = kWgmmaVariants[i];
    if (v.head_dim != p.head_dim || v.cache != cache) continue;
    if (cache == CacheKind::kSame && v.element != p.q.dtype) continue;
    if (choice.variant >= 0 && kWgmmaVariants[choice.variant].rows >= rows) break;
    choice.variant = i;
  }
  return choice.variant < 0 ? no("no wgmma for this head dim and these types") : choice;
}

}  // namespace pagedecode::cuda
