// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of a fold, and where a finished row goes.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/merge/state.h"
#include "cuda/schedule/work.h"

namespace pagedecode::cuda {

// acc = acc * left + x * right, the same bits wherever it is inlined.
__device__ __forceinline__ void fold_values(float4& acc, FoldWeights w, float4 x) {
  acc.x = __fmaf_rn(x.x, w.right, __fmul_rn(acc.x, w.left));
  acc.y = __fmaf_rn(x.y, w.right, __fmul_rn(acc.y, w.left));
  acc.z = __fmaf_rn(x.z, w.right, __fmul_rn(acc.z, w.left));
  acc.w = __fmaf_rn(x.w, w.right, __fmul_rn(acc.w, w.left));
}

__device__ __forceinline__ float sink_of(const DecodeProblem& p, int q_head) {
  return p.sinks ? p.sinks[q_head] * kLog2e : -INFINITY;
}

// Elements before a column of a row's output, and where its lse goes, if it is asked for.
__device__ __forceinline__ std::int64_t out_offset(const DecodeProblem& p, const SequenceView& s,
                                                   int i, int q_head, int column) {
  return row_offset(p.out, s, i, bool(p.cu_seqlens_q)) + q_head * p.out.head_stride + column;
}
__device__ __forceinline__ float* lse_place(const DecodeProblem& p, const SequenceView& s, int i,
                                            int q_head) {
  return p.lse.data + (s.first_row + i) * p.lse.row_stride + q_head * p.lse.head_stride;
}

// Four columns of a finished row.
__device__ __forceinline__ void store_out(const DecodeProblem& p, const SequenceView& s, int i,
                                          int q_head, int column, float4 x) {
  const std::int64_t at = out_offset(p, s, i, q_head, column);
  if (p.out.dtype == DType::kFloat32) {
    *reinterpret_cast<float4*>(static_cast<float*>(p.out.data) + at) = x;
  } else if (p.out.dtype == DType::kFloat16) {
    const __half2 h[2] = {__floats2half2_rn(x.x, x.y), __floats2half2_rn(x.z, x.w)};
    uint2 bits;
    memcpy(&bits, h, 8);
    *reinterpret_cast<uint2*>(static_cast<__half*>(p.out.data) + at) = bits;
  } else {
    const __nv_bfloat162 h[2] = {__floats2bfloat162_rn(x.x, x.y), __floats2bfloat162_rn(x.z, x.w)};
    uint2 bits;
    memcpy(&bits, h, 8);
    *reinterpret_cast<uint2*>(static_cast<__nv_bfloat16*>(p.out.data) + at) = bits;
  }
}

__device__ __forceinline__ void store_lse(const DecodeProblem& p, const SequenceView& s, int i,
                                          int q_head, float lse) {
  if (p.lse.data) *lse_place(p, s, i, q_head) = lse;
}

}  // namespace pagedecode::cuda
