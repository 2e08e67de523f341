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

// How K and V come to shared memory.
enum class WgmmaLoad : std::uint8_t {
  kTma,     // in boxes of kTmaTokens tokens or more
  kCopies,  // row by row, by cp.async: pages that hold no such box
};

// What wgmma's M of 64 is.
enum class WgmmaOrder : std::uint8_t {
  kKeysFirst,  // keys: few rows waste nothing, since N may be 8
  kRowsFirst,  // query rows, 64 to a warpgroup: probabilities stay in registers
};

// Which calls a variant is for, of those whose types and rows are its own. Of two with as many rows
// the one for fewer calls is taken.
enum class WgmmaUse : std::uint8_t {
  kAlways,
  // Few items (sequence, row tile, KV head), see is_to_gather; splits as the keys fall. All blocks
  // run at once, and gather the splits together (gather.cuh).
  kFewItems,
};

struct WgmmaVariant {
  const char* name;
  DType element;  // of the matrix products; 1-byte caches take q of either 16-bit type
  CacheKind cache;
  WgmmaLoad load;
  int head_dim;
  int rows;           // query rows (m x group) of a tile: N of the products, or M
  int groups;         // consuming warpgroups of a block: 64 keys, or rows, or every other tile
  int stages;         // of a tile of K and V, as it is loaded
  int blocks_per_sm;  // registers: 1 group 248, 168, 128 with 1, 2, 3; 2 groups 176 to 216
  WgmmaUse use = WgmmaUse::kAlways;
  WgmmaOrder order = WgmmaOrder::kKeysFirst;
};

// Keys of a tile.
constexpr int wgmma_keys(const WgmmaVariant& v) {
  return v.order == WgmmaOrder::kRowsFirst ? 64 : 64 * v.groups;
}
inline constexpr int kWgmmaWorks = 4;  // ring of Work

// Boxes of 8 tokens or more: 8 rows are what the swizzle repeats over.
inline constexpr int kTmaTokens = 8;

// Bytes of a row of K or V that lie together in shared memory: what a TMA box holds of a token.
constexpr int wgmma_part_bytes(int head_dim, bool one_byte) {
  return one_byte && head_dim < 128 ? 64 : 128;
}

inline constexpr auto kBf16 = DType::kBFloat16;
inline constexpr auto kFp16 = DType::kFloat16;
inline constexpr auto kTma = WgmmaLoad::kTma;
inline constexpr auto kCopies = WgmmaLoad::kCopies;
inline constexpr auto kRowsFirst = WgmmaOrder::kRowsFirst;
inline constexpr auto kAlways = WgmmaUse::kAlways;
inline constexpr auto kFewItems = WgmmaUse::kFewItems;

inline constexpr WgmmaVariant kWgmmaVariants[] = {
    // Two blocks of one warpgroup: one works while the other begins or ends a work. `_few`: two
    // warpgroups of one block share tiles of 128 keys, which makes half as many splits to merge: 1
    // x 8192, 16 x 4096, 64 x 8192 keys, 8 rows of bf16: 14.5, 67.0, 491 us (two blocks: 19.6,
    // 69.9, 488); 32 rows: 17.0, 70.4, 504 (23.3, 72.1, 492).
    {"bf16_d128_r8", kBf16, CacheKind::kSame, kTma, 128, 8, 1, 3, 2},
    {"bf16_d128_r16", kBf16, CacheKind::kSame, kTma, 128, 16, 1, 3, 2},
    {"bf16_d128_r32", kBf16, CacheKind::kSame, kTma, 128, 32, 1, 2, 2},
    {"bf16_d128_r8_few", kBf16, CacheKind::kSame, kTma, 128, 8, 2, 3, 1, kFewItems},
    {"bf16_d128_r16_few", kBf16, CacheKind::kSame, kTma, 128, 16, 2, 3, 1, kFewItems},
    {"bf16_d128_r32_few", kBf16, CacheKind::kSame, kTma, 128, 32, 2, 3, 1, kFewItems},
    {"fp16_d128_r16", kFp16, CacheKind::kSame, kTma, 128, 16, 1, 3, 2},
    {"fp16_d128_r16_few", kFp16, CacheKind::kSame, kTma, 128, 16, 2, 3, 1, kFewItems},
    // 64 rows of 16 x 8192 keys, in pages of 64 and 16: rows first, two warpgroups with every other
    // tile each, 130 and 133 us; two that share tiles of 128 keys 132 and 141; rows first, two
    // blocks of one warpgroup, 138.
    {"bf16_d128_r64", kBf16, CacheKind::kSame, kTma, 128, 64, 2, 5, 1, kAlways, kRowsFirst},
    {"fp16_d128_r64", kFp16, CacheKind::kSame, kTma, 128, 64, 2, 5, 1, kAlways, kRowsFirst},
    // More than 64 rows read their keys once, two warpgroups with 64 rows each: 128 rows of 16 x
    // 8192 and of 64 x 8192 keys 138 and 586 us (1.18 and 1.24); two passes of 64: 261 and 1040.
    {"bf16_d128_r128", kBf16, CacheKind::kSame, kTma, 128, 128, 2, 6, 1, kAlways, kRowsFirst},
    {"fp16_d128_r128", kFp16, CacheKind::kSame, kTma, 128, 128, 2, 6, 1, kAlways, kRowsFirst},
    // Both ways to merge in one kernel cost 4 % of 16 x 8192 (e4m3_d128_r64, too: 6 %).
    {"bf16_d128_r128_few", kBf16, CacheKind::kSame, kTma, 128, 128, 2, 6, 1, kFewItems, kRowsFirst},
    {"fp16_d128_r128_few", kFp16, CacheKind::kSame, kTma, 128, 128, 2, 6, 1, kFewItems, kRowsFirst},
    // 1-byte caches. 8 rows, 64 x 1024 and 64 x 8192 keys: 38.9 and 249 us (three blocks, of one
    // loading warp each, as registers allow: 42.7 and 258; `_few`: 42.3 and 252); 1 x 8192 and 16 x
    // 4096: 16.5 and 41.1 (`_few`: 11.4 and 38.4). 256 x 512 keys, 16 rows: 92.7 (three blocks:
    // 82.7).
    {"e4m3_d128_r8", kFp16, CacheKind::kE4M3, kTma, 128, 8, 1, 6, 2},
    {"e4m3_d128_r16", kFp16, CacheKind::kE4M3, kTma, 128, 16, 1, 6, 2},
    {"e4m3_d128_r32", kFp16, CacheKind::kE4M3, kTma, 128, 32, 1, 5, 2},
    {"e4m3_d128_r8_few", kFp16, CacheKind::kE4M3, kTma, 128, 8, 2, 6, 1, kFewItems},
    {"e4m3_d128_r16_few", kFp16, CacheKind::kE4M3, kTma, 128, 16, 2, 6, 1, kFewItems},
    {"e4m3_d128_r32_few", kFp16, CacheKind::kE4M3, kTma, 128, 32, 2, 6, 1, kFewItems},
    {"bytes_d128_r32", kFp16, CacheKind::kBytes, kTma, 128, 32, 1, 5, 2},
    // 64 rows in one pass, of which each key is converted once: 101 us for 16 x 8192; two passes of
    // 32 rows: 135.
    {"e4m3_d128_r64", kFp16, CacheKind::kE4M3, kTma, 128, 64, 2, 5, 1},
    {"bytes_d128_r64", kFp16, CacheKind::kBytes, kTma, 128, 64, 2, 5, 1},
    {"e4m3_d128_r64_few", kFp16, CacheKind::kE4M3, kTma, 128, 64, 2, 5, 1, kFewItems},
    {"bytes_d128_r64_few", kFp16, CacheKind::kBytes, kTma, 128, 64, 2, 5, 1, kFewItems},

    // More: keys are converted once for 128 rows, by warps of their own, beside the products: 16 x
    // 8192 keys 144 us (bf16 142; two passes of 64 rows: 195). Two such warps are too few for 64
    // rows: rows first, two warpgroups with every other tile each, take 101, too.
    {"e4m3_d128_r128", kFp16, CacheKind::kE4M3, kTma, 128, 128, 2, 5, 1, kAlways, kRowsFirst},
    {"bytes_d128_r128", kFp16, CacheKind::kBytes, kTma, 128, 128, 2, 5, 1, kAlways, kRowsFirst},

    // D 64. 32 rows of bf16, 16 x 4096, 64 x 1024, 64 x 8192 keys: 41.9, 40.6, 251 us (three
    // blocks, of one loading warp each: 44.8, 45.4, 261; `_few`: 39.5, 47.1, 253). 1-byte: three
    // blocks (16 rows, 64 x 8192: 165; two: 195). 16 x 8192, 64 rows of bf16: rows first 72, keys
    // first 92; 128 rows in two passes of 64 104, in one 106; of e4m3 88 and 128 (in passes of 32:
    // 93 and 175). e4m3, 1 x 8192, 16 x 4096, 1 x 131072, 32 rows: 18.8, 34.7, 54.4 (`_few`: 12.2,
    // 33.4, 56.8); 16 rows: 16.8, 31.9, 48.8 (11.1, 29.8, 52.1).
    {"bf16_d64_r16", kBf16, CacheKind::kSame, kTma, 64, 16, 1, 6, 2},
    {"bf16_d64_r32", kBf16, CacheKind::kSame, kTma, 64, 32, 1, 6, 2},
    {"bf16_d64_r16_few", kBf16, CacheKind::kSame, kTma, 64, 16, 2, 6, 1, kFewItems},
    {"bf16_d64_r32_few", kBf16, CacheKind::kSame, kTma, 64, 32, 2, 6, 1, kFewItems},
    {"bf16_d64_r64", kBf16, CacheKind::kSame, kTma, 64, 64, 1, 5, 2, kAlways, kRowsFirst},
    {"fp16_d64_r16", kFp16, CacheKind::kSame, kTma, 64, 16, 1, 6, 2},
    {"fp16_d64_r64", kFp16, CacheKind::kSame, kTma, 64, 64, 1, 5, 2, kAlways, kRowsFirst},
    {"bytes_d64_r16", kFp16, CacheKind::kBytes, kTma, 64, 16, 1, 8, 3},
    {"bytes_d64_r32", kFp16, CacheKind::kBytes, kTma, 64, 32, 1, 6, 3},
    {"bytes_d64_r16_few", kFp16, CacheKind::kBytes, kTma, 64, 16, 2, 8, 1, kFewItems},
    {"bytes_d64_r32_few", kFp16, CacheKind::kBytes, kTma, 64, 32, 2, 8, 1, kFewItems},
    {"bytes_d64_r64", kFp16, CacheKind::kBytes, kTma, 64, 64, 2, 8, 1, kAlways, kRowsFirst},
    {"bytes_d64_r128", kFp16, CacheKind::kBytes, kTma, 64, 128, 2, 8, 1, kAlways, kRowsFirst},

    // D 256: a tile is long enough (1.9 us of an SM's share of the memory) for one warpgroup an SM:
    // 1.01, 1.04 and 1.10 for 8, 32 and 64 rows (generic 1.03, 1.09, 1.88). 1-byte: 1.09 and 1.47
    // for 8 and 32 rows (generic 1.78, 3.05); 32 rows in two passes of 16: 2.19; 128 rows of 16 x
    // 8192 in passes of 64 and 32: 386 and 439 us. e4m3, 1 x 8192, 16 x 4096, 1 x 131072: 32 rows
    // 34.8, 79.1, 143.8 (`_few`: 22.5, 72.3, 133.8); 16 rows 25.8, 73.4, 134.8 (19.3, 70.1, 131.2).
    {"bf16_d256_r16", kBf16, CacheKind::kSame, kTma, 256, 16, 1, 3, 1},
    {"bf16_d256_r32", kBf16, CacheKind::kSame, kTma, 256, 32, 1, 3, 1},
    {"bf16_d256_r64", kBf16, CacheKind::kSame, kTma, 256, 64, 1, 2, 1},
    {"fp16_d256_r16", kFp16, CacheKind::kSame, kTma, 256, 16, 1, 3, 1},
    {"fp16_d256_r64", kFp16, CacheKind::kSame, kTma, 256, 64, 1, 2, 1},
    // 128 rows of 16 x 8192 keys: 265 us, 1.11 of the ceiling; two passes of 64: 503.
    {"bf16_d256_r128", kBf16, CacheKind::kSame, kTma, 256, 128, 2, 2, 1, kAlways, kRowsFirst},
    {"fp16_d256_r128", kFp16, CacheKind::kSame, kTma, 256, 128, 2, 2, 1, kAlways, kRowsFirst},
    {"bytes_d256_r16", kFp16, CacheKind::kBytes, kTma, 256, 16, 1, 3, 2},
    {"bytes_d256_r32", kFp16, CacheKind::kBytes, kTma, 256, 32, 1, 2, 2},
    {"bytes_d256_r16_few", kFp16, CacheKind::kBytes, kTma, 256, 16, 2, 3, 1, kFewItems},
    {"bytes_d256_r32_few", kFp16, CacheKind::kBytes, kTma, 256, 32, 2, 3, 1, kFewItems},
    {"bytes_d256_r64", kFp16, CacheKind::kBytes, kTma, 256, 64, 2, 2, 1},

    // Pages of 1, 64 x 8192 keys of D 128, 8 rows: bf16 487 us, e4m3 295 (pages of 64: 481 and 251;
    // one warp for K and one for V of each of two blocks: 617 and 421). Many short sequences are
    // slower than with two blocks: 256 x 512 keys of e4m3 1.27 x (D 64), 1.13 x (D 128), 1.12 x (D
    // 256). 128 rows of 16 x 8192 in passes of 64: D 64 173 us of bf16, 186 of e4m3 (passes of 32:
    // 300, 249), D 256 567 and 417 (of 32 and 16: 1041, 1372).
    {"bf16_d64_r32_copies", kBf16, CacheKind::kSame, kCopies, 64, 32, 2, 6, 1},
    {"bf16_d128_r16_copies", kBf16, CacheKind::kSame, kCopies, 128, 16, 2, 3, 1},
    {"bf16_d128_r32_copies", kBf16, CacheKind::kSame, kCopies, 128, 32, 2, 3, 1},
    {"bf16_d128_r64_copies", kBf16, CacheKind::kSame, kCopies, 128, 64, 2, 2, 1},
    {"bf16_d256_r32_copies", kBf16, CacheKind::kSame, kCopies, 256, 32, 1, 3, 1},
    {"fp16_d128_r64_copies", kFp16, CacheKind::kSame, kCopies, 128, 64, 2, 2, 1},
    {"bytes_d64_r32_copies", kFp16, CacheKind::kBytes, kCopies, 64, 32, 2, 11, 1},
    {"bytes_d128_r16_copies", kFp16, CacheKind::kBytes, kCopies, 128, 16, 2, 6, 1},
    {"bytes_d128_r32_copies", kFp16, CacheKind::kBytes, kCopies, 128, 32, 2, 6, 1},
    {"bytes_d128_r64_copies", kFp16, CacheKind::kBytes, kCopies, 128, 64, 2, 5, 1},
    {"bytes_d256_r16_copies", kFp16, CacheKind::kBytes, kCopies, 256, 16, 2, 3, 1},
    {"bytes_d256_r64_copies", kFp16, CacheKind::kBytes, kCopies, 256, 64, 2, 2, 1},
    {"bytes_d64_r64_copies", kFp16, CacheKind::kBytes, kCopies, 64, 64, 2, 8, 1},
    {"bf16_d64_r64_copies", kBf16, CacheKind::kSame, kCopies, 64, 64, 2, 5, 1},
    {"bf16_d256_r64_copies", kBf16, CacheKind::kSame, kCopies, 256, 64, 1, 2, 1},
};

// Tiles of K, and of V, that a block has on their way at a time: 64 KB an SM, but two of each where
// the stages are more. More makes the queues longer: 16 x 4096 keys, 8 rows, two and three blocks
// of one warpgroup, bf16 with 64, 96, 128 KB and with all that the stages hold: 70.6, 71.5, 71.8,
// 73.8 us; e4m3 with 48, 72, 96 KB and all: 41.2, 42.9, 45.1, 48.4. One tile of each is too few
// where a tile is asked for in small boxes: 64 x 8192 keys of bf16 in pages of 16 take 513 us, with
// two 490.
constexpr int wgmma_flight(const WgmmaVariant& v) {
  const int tile = wgmma_keys(v) * v.head_dim * (v.cache == CacheKind::kSame ? 2 : 1);
  const int flight = 65536 / (v.blocks_per_sm * 2 * tile);
  // A tile that is one round of the stages back could not be waited for.
  const int most = v.stages - 1;
  return flight > most || most < 2 ? most : flight < 2 ? 2 : flight;
}

inline constexpr int kNumWgmmaVariants = sizeof(kWgmmaVariants) / sizeof(kWgmmaVariants[0]);

// How splits are gathered (gather.cuh): lanes that share one vector's, and the layout of a slot of
// the exchange, in units of a pair of rows and the vectors of a warp.
constexpr int wgmma_gather_lanes(const WgmmaVariant& v) { return v.rows <= 16 ? 8 : 4; }
constexpr int wgmma_gather_units(const WgmmaVariant& v) {
  return v.rows / 2 * (v.head_dim / 2 * wgmma_gather_lanes(v) / 32);
}
constexpr int wgmma_slot_bytes(const WgmmaVariant& v) {
  return wgmma_gather_units(v) * (32 / wgmma_gather_lanes(v) + 1) * 16;
}

// Whether a variant can gather splits: those for few items do nothing else; of the others those
// with one block an SM that have no such kernel beside them, up to states of 72 KB (128 rows of D
// 128).
constexpr bool wgmma_gathers(const WgmmaVariant& v) {
  if (v.use == WgmmaUse::kFewItems) return true;
  if (v.blocks_per_sm > 1) return false;
  for (const WgmmaVariant& few : kWgmmaVariants) {
    if (few.use == WgmmaUse::kFewItems && few.element == v.element && few.cache == v.cache &&
        few.load == v.load && few.head_dim == v.head_dim && few.rows == v.rows) {
      return false;
    }
  }
  return wgmma_slot_bytes(v) <= 73728;
}

// Bytes that the exchange needs of an SM: of each block a slot for the item that its chunk begins
// in, and one for the item that it ends in.
constexpr int most_exchange_bytes() {
  int most = 0;
  for (const WgmmaVariant& v : kWgmmaVariants) {
    const int bytes = 2 * wgmma_slot_bytes(v) * v.blocks_per_sm;
    if (wgmma_gathers(v) && bytes > most) most = bytes;
  }
  return most;
}
inline constexpr int kExchangeBytesOfSm = most_exchange_bytes();

constexpr int find_wgmma_variant(const char* name) {
  for (int i = 0; i < kNumWgmmaVariants; ++i) {
    if (same_text(kWgmmaVariants[i].name, name)) return i;
  }
  return -1;
}

inline bool has_wgmma(const DeviceInfo& device) {
  return device.cc_major == 9 && device.cc_minor == 0;
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

// load_rows.cuh counts chunks of 16 bytes in 32 bits.
inline bool copies_reach(const DecodeProblem& p, const CacheView& c) {
  const std::int64_t size = is_one_byte(c.dtype) ? 1 : 2;
  const std::int64_t last =
      (p.pages.num_pages - 1) * c.page_stride + (p.page_size - 1) * c.token_stride;
  return last * size / 16 < INT64_C(1) << 32;
}

// Whether a variant is right for a call.
constexpr bool takes(const WgmmaVariant& v, DType q, CacheKind cache, WgmmaLoad load,
                     int head_dim) {
  if (v.head_dim != head_dim || v.load != load) return false;
  if (cache == CacheKind::kSame) return v.cache == cache && v.element == q;
  return v.cache == cache || (v.cache == CacheKind::kBytes && cache == CacheKind::kE4M3);
}

// Whether a call's splits are to be gathered, by a variant that can. With batch_invariant a row's
// bits must not depend on how many items (sequence, row tile, KV head) there are. Large states, and
// kernels that can fold them, too, are for one pass over items of 16 splits or more: 8192 keys by
// 64 and 128 rows of bf16, in 16 splits: 19.0 and 26.0 us (folded: 25.8, 31.7); in 5: 29.5 and 49.3
// (27.3, 41.3).
inline bool is_to_gather(const WgmmaVariant& v, const DecodeProblem& p, const DeviceInfo& device,
                         std::int64_t rows) {
  if (p.batch_invariant || p.num_splits > 0) return false;
  const std::int64_t row_tiles = (rows + v.rows - 1) / v.rows;
  const std::int64_t items = p.batch * row_tiles * p.num_kv_heads;
  const std::int64_t blocks = std::int64_t{device.sm_count} * v.blocks_per_sm;
  if (v.use == WgmmaUse::kFewItems && v.rows <= 32) return items <= blocks;
  return items * 16 <= blocks && row_tiles == 1;
}

// The variant for tiles of `rows` query rows: the one for this cache alone, if there is one; of
// those the one of fewest rows that holds them, else the largest, in several passes whose loads
// meet in L2; of those the one for few items, where they are few and blocks may wait for each other
// (`together`). With batch_invariant `rows` has to be the group, so that m cannot change a row's
// bits.
inline WgmmaChoice choose_wgmma(const DecodeProblem& p, const DeviceInfo& device, std::int64_t rows,
                                bool together = true) {
  const CacheKind cache = cache_kind(p.q.dtype, p.k.dtype, p.v.dtype, p.rope.on);
  WgmmaChoice choice;
  const auto no = [&](const char* why) {
    choice.why_not = why;
    return choice;
  };
  if (!has_wgmma(device)) return no("wgmma needs compute capability 9.0");
  if (p.rope.on) return no("no wgmma with RoPE on read");
  if (cache == CacheKind::kAny) return no("no wgmma for caches of two kinds");
  if (p.pages.num_pages < 1 || p.pages.num_pages > INT32_MAX) return no("no wgmma for this pool");
  if (!tensor_map_takes(p, p.k) || !tensor_map_takes(p, p.v)) {
    return no("wgmma needs cache strides of multiples of 16 bytes");
  }
  const WgmmaLoad load = p.page_size % kTmaTokens == 0 ? WgmmaLoad::kTma : WgmmaLoad::kCopies;
  if (load == WgmmaLoad::kCopies && !(copies_reach(p, p.k) && copies_reach(p, p.v))) {
    return no("no wgmma for small pages in a pool of more than 64 GB");
  }
  bool head_dim = false;
  for (int i = 0; i < kNumWgmmaVariants; ++i) {
    const WgmmaVariant& v = kWgmmaVariants[i];
    head_dim = head_dim || v.head_dim == p.head_dim;
    if (!takes(v, p.q.dtype, cache, load, p.head_dim)) continue;
    if (v.use == WgmmaUse::kFewItems && !(together && is_to_gather(v, p, device, rows))) continue;
    if (choice.variant >= 0) {
      const WgmmaVariant& best = kWgmmaVariants[choice.variant];
      if (v.cache != best.cache) {
        if (v.cache != cache) continue;
      } else if (v.rows == best.rows) {
        if (v.use < best.use) continue;
      } else if (best.rows >= rows ? v.rows < rows || v.rows > best.rows : v.rows < best.rows) {
        continue;
      }
    }
    choice.variant = i;
  }
  if (choice.variant >= 0) return choice;
  if (!head_dim) return no("no wgmma for this head dim");
  return no("no wgmma for this head dim, these types and this page size");
}

}  // namespace pagedecode::cuda
