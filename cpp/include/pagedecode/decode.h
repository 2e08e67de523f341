// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Paged multi-query decode attention. Symbols: B sequences, Hq query heads, Hkv KV heads,
// group = Hq / Hkv, D head dim, P page size, m query rows and n keys of one sequence,
// total_q = sum of m.
//
// For query row i of a sequence, key j has logit s = softmax_scale * <q_i, k_j * k_scale>, then
// softcap * tanh(s / softcap), + alibi_slope * (pos(j) - pos(i)), mask; softmax over the visible
// keys with exp(sink) added to the denominator; out_i = sum_j p_j * v_j * v_scale.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "pagedecode/export.h"
#include "pagedecode/types.h"

namespace pagedecode {

// Rotates q and k while reading. Angle of pair t at position p: p / scale * theta^(-2 t / D); pairs
// are (t, t + D / 2), or (2 t, 2 t + 1) if interleaved.
struct Rope {
  double theta = 10000.0;
  double scale = 1.0;
  bool interleaved = false;
};

// real = stored * scale: a host number, or a float32 array [1] or [Hkv] on the call's device.
struct Scale {
  double value = 1.0;
  std::optional<Tensor> array;
};

struct DecodeArgs {
  Tensor q;        // [total_q, Hq, D] with cu_seqlens_q, [B, m, Hq, D] without
  Tensor k_cache;  // by kv_layout; K and V may differ in dtype and strides
  Tensor v_cache;
  std::optional<Tensor> block_table;         // int32/int64 [B, max_pages]; or the two below (CSR)
  std::optional<Tensor> page_indptr;         // int32/int64 [B + 1]
  std::optional<Tensor> page_indices;        // int32/int64 [num_indices]
  Tensor seq_lens;                           // int32/int64 [B]
  std::optional<Tensor> cu_seqlens_q;        // int32/int64 [B + 1]
  std::optional<std::int64_t> max_seqlen_q;  // host upper bound of m
  KVLayout kv_layout = KVLayout::kNHD;
  std::optional<double> softmax_scale;  // default D^-0.5
  bool causal = true;                   // bottom-right aligned
  std::optional<Tensor> draft_mask;     // bool [total_q, width] or uint32 [total_q, ceil(width/32)]
  std::optional<Tensor> positions;      // int32/int64 [total_q]; default n - m + i
  std::int64_t window_left = -1;        // keys besides the row's own that stay visible; -1: all
  double softcap = 0.0;                 // 0: off
  std::optional<Tensor> alibi_slopes;   // float32 [Hq]
  std::optional<Tensor> sinks;          // float32 [Hq]
  std::optional<Rope> rope;
  Scale k_scale;
  Scale v_scale;
  Tensor out;                 // q's shape; q's dtype, float32, float16 or bfloat16
  std::optional<Tensor> lse;  // float32 [total_q, Hq]
  LseBase lse_base = LseBase::kE;
  std::optional<std::int64_t> num_splits;  // KV splits; default: the library decides
  bool batch_invariant = false;
  // uint8 [>= workspace_size(...)], contiguous, aligned to 16 bytes, zeroed once before its first
  // use; then good for any shapes in any order.
  std::optional<Tensor> workspace;
  void* stream = nullptr;       // cudaStream_t; null on the CPU
  bool check_contents = false;  // CUDA: synchronise and check what lives on the device, too
};

// What a call would run, and why.
struct Explanation {
  std::string backend;
  std::string kernel;
  int tile_rows = 0;
  int tile_keys = 0;
  std::int64_t splits = 0;  // the most splits of one sequence
  std::string why;
};

PAGEDECODE_API void decode(const DecodeArgs& args);
// Bytes of scratch that `workspace` must have; by shapes and options only.
PAGEDECODE_API std::size_t workspace_size(const DecodeArgs& args);
// Every check of decode, on contents as well; synchronises on CUDA.
PAGEDECODE_API void check(const DecodeArgs& args);
PAGEDECODE_API Explanation explain(const DecodeArgs& args);

}  // namespace pagedecode
