// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// What the driver (run_item.cpp, compiled once) and the kernels (isa/, compiled once for each
// instruction level) share. Plain data and function pointers only: nothing inline with linkage, so
// that no code of a higher level can stand in for the driver's.
//
// A tile is kTileKeys consecutive keys of one sequence and KV head, from an absolute multiple of
// kTileKeys on; its rows are up to kTileRows query rows (m x group, flattened as i * group + g).
// The kernel sees K and V as one address for each key: paging, layouts, strides are the driver's.
#pragma once

#include <cstdint>

#include "pagedecode/types.h"

namespace pagedecode::cpu {

inline constexpr int kTileKeys = 64;
inline constexpr int kTileRows = 64;
inline constexpr int kMaxHeadDim = 256;
inline constexpr int kMaxUnitHeads = 8;  // KV heads whose tiles one thread takes in turn
inline constexpr int kDimPad = 32;  // rows of scratch are padded to this many elements, with zeros

// Consecutive rows that see the same keys of a tile.
struct RowRun {
  int first = 0;
  int count = 0;
  std::uint64_t visible = 0;  // bit j: key j of the tile
};

struct TileTask {
  std::int64_t first_key;
  int keys;                   // 1 + the last key that any row sees
  std::uint64_t seen;         // keys that some row sees
  std::uint64_t seen_by_all;  // keys that every row sees
  int num_runs;
  RowRun runs[kTileRows];
  // Each key's D elements of the item's first head; a row of zeros where unseen.
  const char* k_rows[kTileKeys];
  const char* v_rows[kTileKeys];
};

// Running softmax of the rows of one KV head.
struct alignas(64) RowState {
  float q[kTileRows * kMaxHeadDim];    // as the variant's load_q leaves it
  float out[kTileRows * kMaxHeadDim];  // (rows, padded D): sum of p v, not normalised
  float max[kTileRows];                // -inf before the first visible key
  float sum[kTileRows];                // of exp(logit - max)
  float slope[kTileRows];              // ALiBi
};

// Staging buffers of one thread.
struct alignas(64) Scratch {
  float k[kTileKeys * kMaxHeadDim];
  float v[kTileKeys * kMaxHeadDim];
  float s[kTileRows * kTileKeys];             // (rows, keys): logits, then probabilities
  float alpha[kTileRows];                     // exp(old max - new max)
  std::uint16_t p_hi[kTileRows * kTileKeys];  // (rows, keys): bfloat16 parts of the probabilities
  std::uint16_t p_lo[kTileRows * kTileKeys];
  float spare[16 * (kMaxHeadDim + kTileKeys)];
  float zeros[kMaxHeadDim];  // what unseen keys point to
  bool v_not_finite;         // AMX: what stage_v found
  // AMX: where 16 keys' bfloat16 rows are, in k or in the cache itself.
  const char* k_block[kTileKeys / 16];
  std::int64_t k_stride[kTileKeys / 16];
};

// Rows that a kernel is to bring to L1 on its way, a few lines at a time (isa/prefetch.h).
struct LineCursor {
  const char* const* next;  // rows to come
  const char* const* last;
  const char* at;  // what is left of the current one
  const char* end;
  int bytes;  // of a row
};

// What stays the same for all tiles of an item.
struct ItemArgs {
  int rows = 0;
  int head_dim = 0;
  int padded_dim = 0;        // head_dim up to a multiple of kDimPad
  float logit_scale = 1.0f;  // softmax_scale * k_scale
  float softcap = 0.0f;
  bool alibi = false;
  const std::int64_t* row_positions = nullptr;  // [rows], with alibi
  const std::int64_t* key_positions = nullptr;  // [kTileKeys] of the tile, with alibi
  RowState* state = nullptr;
  Scratch* scratch = nullptr;
  LineCursor* cursor = nullptr;
};

// The steps of one pair of dtypes at one level.
struct Variant {
  const char* name = nullptr;
  void (*load_q)(const ItemArgs&, const char* const* q_rows) = nullptr;
  // `rows`: the address of each key's D elements; those of unseen keys are zeros.
  void (*stage_k)(const ItemArgs&, const TileTask&, const char* const* rows) = nullptr;
  void (*logits)(const ItemArgs&, const TileTask&) = nullptr;
  void (*stage_v)(const ItemArgs&, const TileTask&, const char* const* rows) = nullptr;
  void (*softmax)(const ItemArgs&, const TileTask&) = nullptr;
  void (*accumulate)(const ItemArgs&, const TileTask&, const char* const* v_rows) = nullptr;
  void (*begin)() = nullptr;  // around an item, may be null
  void (*end)() = nullptr;
};

struct Level {
  const char* name;
  Variant (*variant)(DType q, DType k, DType v);
  // dst[i] = x[i] * scale for head_dim elements, rounded to `dtype` once.
  void (*store_row)(DType dtype, const float* x, float scale, int count, char* dst);
};

}  // namespace pagedecode::cpu
