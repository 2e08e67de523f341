// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// What stands beside decode: writing and moving cache slots, and merging attention states.
// A slot is page * P + offset.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "pagedecode/decode.h"
#include "pagedecode/export.h"
#include "pagedecode/types.h"

namespace pagedecode {

// Stores x / scale, rounded to nearest even and saturated to the cache's type; NaN stays NaN in
// float types. Negative slots are skipped.
struct AppendArgs {
  Tensor k;        // 16-bit or float32 [T, Hkv, D]
  Tensor v;        // 16-bit or float32 [T, Hkv, D]
  Tensor k_cache;  // written
  Tensor v_cache;  // written
  Tensor slots;    // int32/int64 [T]
  KVLayout kv_layout = KVLayout::kNHD;
  Scale k_scale;
  Scale v_scale;
  void* stream = nullptr;
};

// Slot of each query row's own key n - m + i; -1 where that is negative and past the last offset.
struct SlotsArgs {
  std::optional<Tensor> block_table;   // int32/int64 [B, max_pages]; or the two below (CSR)
  std::optional<Tensor> page_indptr;   // int32/int64 [B + 1]
  std::optional<Tensor> page_indices;  // int32/int64 [num_indices]
  Tensor seq_lens;                     // int32/int64 [B]
  Tensor cu_seqlens_q;                 // int32/int64 [B + 1]
  std::int64_t page_size = 0;
  Tensor out;  // int64 [total_q], written
  void* stream = nullptr;
};

// Softmax-weighted merge of attention states of the same rows over disjoint keys.
struct MergeArgs {
  std::vector<Tensor> outs;  // each [rows, Hq, D], float32, float16 or bfloat16
  std::vector<Tensor> lses;  // each float32 [rows, Hq]
  Tensor out;                // [rows, Hq, D]; may be one of outs
  Tensor lse;                // float32 [rows, Hq]; may be one of lses
  LseBase lse_base = LseBase::kE;
  void* stream = nullptr;
};

// Copies slots bit for bit; all sources are read before any destination is written. A pair with a
// negative member is skipped.
struct MoveArgs {
  Tensor k_cache;    // read and written
  Tensor v_cache;    // read and written
  Tensor src_slots;  // int32/int64 [T]
  Tensor dst_slots;  // int32/int64 [T]
  KVLayout kv_layout = KVLayout::kNHD;
  void* stream = nullptr;
};

PAGEDECODE_API void append(const AppendArgs& args);
PAGEDECODE_API void slots(const SlotsArgs& args);
PAGEDECODE_API void merge_states(const MergeArgs& args);
PAGEDECODE_API void move(const MoveArgs& args);

}  // namespace pagedecode
