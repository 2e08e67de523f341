// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The checked problems. The public functions turn the caller's arguments into one of these, once;
// both backends then trust every field. They are plain data, so that a kernel takes them by value.
// Strides count elements unless their name says bytes; a missing array has data == nullptr.
#pragma once

#include <cstddef>
#include <cstdint>

#include "host_device.h"
#include "pagedecode/types.h"

namespace pagedecode {

// A 1-d array of int32 or int64 with any stride.
struct IndexArray {
  const void* data = nullptr;
  std::int64_t stride = 0;
  bool wide = false;  // int64

  PD_HOST_DEVICE explicit operator bool() const { return data != nullptr; }
  PD_HOST_DEVICE std::int64_t operator[](std::int64_t i) const {
    return wide ? static_cast<const std::int64_t*>(data)[i * stride]
                : static_cast<const std::int32_t*>(data)[i * stride];
  }
};

// A 1-d float32 array with any stride (0 broadcasts).
struct FloatArray {
  const float* data = nullptr;
  std::int64_t stride = 0;

  PD_HOST_DEVICE explicit operator bool() const { return data != nullptr; }
  PD_HOST_DEVICE float operator[](std::int64_t i) const { return data[i * stride]; }
};

// Where the page ids of a sequence are: a table [B, width], or CSR (indptr [B + 1], indices).
struct PageTable {
  IndexArray entries;           // table: rows of row_stride; CSR: indices
  std::int64_t row_stride = 0;  // table only
  std::int64_t width = 0;       // table: entries a row; CSR: length of indices
  IndexArray indptr;            // CSR only
  std::int64_t num_pages = 0;   // of the pool: ids are 0 .. num_pages - 1
};

// One of K and V: element (page, token, head, d) is at
// page * page_stride + token * token_stride + head * head_stride + d.
struct CacheView {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  std::int64_t page_stride = 0;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
};

// [rows, heads, D], or [B, m, heads, D] when seq_stride is used.
struct RowsView {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  std::int64_t seq_stride = 0;  // 4-d only: of one sequence
  std::int64_t row_stride = 0;
  std::int64_t head_stride = 0;
};

struct LseView {
  float* data = nullptr;  // [total_q, Hq]
  std::int64_t row_stride = 0;
  std::int64_t head_stride = 0;
};

// real = stored * scale of a KV head: a host number, or an array whose stride is 0 for shape [1].
struct ScaleView {
  float value = 1.0f;
  FloatArray array;

  PD_HOST_DEVICE float operator[](std::int64_t head) const { return array ? array[head] : value; }
};

enum class MaskKind : std::uint8_t { kNone, kBool, kPacked };

// Draft mask: row r (of total_q), column j.
struct MaskView {
  MaskKind kind = MaskKind::kNone;
  const void* data = nullptr;   // uint8 or uint32
  std::int64_t row_stride = 0;  // in elements of data
  std::int64_t col_stride = 0;  // of a byte (bool) or of a word (packed)
  std::int64_t width = 0;       // columns that exist

  PD_HOST_DEVICE bool operator()(std::int64_t row, std::int64_t col) const {
    if (col >= width) return false;
    if (kind == MaskKind::kBool) {
      return static_cast<const std::uint8_t*>(data)[row * row_stride + col * col_stride] != 0;
    }
    const auto word =
        static_cast<const std::uint32_t*>(data)[row * row_stride + (col >> 5) * col_stride];
    return (word >> (col & 31)) & 1u;
  }
};

struct RopeParams {
  bool on = false;
  bool interleaved = false;
  double theta = 10000.0;
  double scale = 1.0;
};

struct DecodeProblem {
  Device device;

  std::int64_t batch = 0;         // B
  std::int64_t total_q = 0;       // rows of q
  std::int64_t uniform_q = -1;    // m of every sequence for 4-d q; -1: ragged, by cu_seqlens_q
  std::int64_t max_q = 0;         // upper bound of m: exact, given, or total_q
  bool max_q_known = true;        // false: ragged on CUDA without max_seqlen_q
  std::int32_t num_q_heads = 0;   // Hq
  std::int32_t num_kv_heads = 0;  // Hkv
  std::int32_t group = 0;         // Hq / Hkv
  std::int32_t head_dim = 0;      // D
  std::int64_t page_size = 0;     // P

  RowsView q;
  RowsView out;
  LseView lse;
  CacheView k;
  CacheView v;
  PageTable pages;
  IndexArray seq_lens;
  IndexArray cu_seqlens_q;  // null for 4-d q

  float softmax_scale = 1.0f;
  bool causal = true;
  MaskView draft_mask;
  IndexArray positions;
  std::int64_t window_left = -1;  // -1: all; large values are clamped so that sums cannot overflow
  float softcap = 0.0f;
  FloatArray alibi_slopes;
  FloatArray sinks;
  RopeParams rope;
  ScaleView k_scale;
  ScaleView v_scale;
  bool lse_base2 = false;

  std::int64_t num_splits = 0;  // 0: the backend decides
  bool batch_invariant = false;
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  void* stream = nullptr;
};

struct AppendProblem {
  Device device;
  std::int64_t tokens = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int64_t page_size = 0;
  std::int64_t num_pages = 0;
  RowsView k;  // [T, Hkv, D]
  RowsView v;
  CacheView k_cache;
  CacheView v_cache;
  IndexArray slots;
  ScaleView k_scale;
  ScaleView v_scale;
  void* stream = nullptr;
};

struct SlotsProblem {
  Device device;
  std::int64_t batch = 0;
  std::int64_t total_q = 0;
  std::int64_t page_size = 0;
  PageTable pages;
  IndexArray seq_lens;
  IndexArray cu_seqlens_q;
  std::int64_t* out = nullptr;
  std::int64_t out_stride = 0;
  void* stream = nullptr;
};

// One state of a merge: element (row, head, d) of out is at
// row * row_stride + head * head_stride + d * dim_stride.
struct StateView {
  RowsView out;
  std::int64_t dim_stride = 1;
  LseView lse;
};

struct MergeProblem {
  Device device;
  std::int64_t rows = 0;
  std::int32_t num_heads = 0;
  std::int32_t head_dim = 0;
  const StateView* states = nullptr;  // host array
  std::int64_t num_states = 0;
  StateView result;
  bool lse_base2 = false;
  void* stream = nullptr;
};

struct MoveProblem {
  Device device;
  std::int64_t pairs = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int64_t page_size = 0;
  std::int64_t num_pages = 0;
  CacheView k_cache;
  CacheView v_cache;
  IndexArray src_slots;
  IndexArray dst_slots;
  void* stream = nullptr;
};

}  // namespace pagedecode
