// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Q of a row tile into shared memory: zero past the last row and past the head dim. For 1-byte
// caches Q becomes half: a bfloat16 row is scaled by a power of two of its own (half's range is
// smaller), and columns are permuted as mainloop.cuh wants them.
#pragma once

#include "cuda/decode/convert.cuh"
#include "cuda/decode/traits.h"
#include "cuda/schedule/work.h"
#include "cuda/thread.cuh"
#include "rope.h"

namespace pagedecode::cuda {

struct alignas(16) Chunk16 {
  std::uint32_t words[4];  // 8 elements
};

__device__ __forceinline__ float2 float2_from(DType type, std::uint32_t word) {
  if (type == DType::kFloat16) {
    __half2 h;
    memcpy(&h, &word, 4);
    return __half22float2(h);
  }
  return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
}

template <class Element>
__device__ __forceinline__ std::uint32_t pack2(float a, float b) {
  std::uint32_t word;
  if constexpr (std::is_same_v<Element, cute::half_t>) {
    const __half2 h = __floats2half2_rn(a, b);
    memcpy(&word, &h, 4);
  } else {
    const __nv_bfloat162 h = __floats2bfloat162_rn(a, b);
    memcpy(&word, &h, 4);
  }
  return word;
}

// Rotates 8 elements from `column` on, of a row at a position. `partner`: the 8 elements that they
// pair with when pairs are not interleaved.
__device__ inline void rotate8(const RopeParams& rope, int head_dim, std::int64_t position,
                               int column, float (&x)[8], const float (&partner)[8]) {
  const int half = head_dim / 2;
#pragma unroll 1
  for (int i = 0; i < 8; ++i) {
    if (rope.interleaved && i % 2) continue;
    const int d = column + i;
    const int pair = rope.interleaved ? d / 2 : d % half;
    float sin, cos;
    sincosf(rope_angle(rope_turns(rope, head_dim, pair), position), &sin, &cos);
    if (rope.interleaved) {
      const float a = x[i], b = x[i + 1];
      x[i] = a * cos - b * sin;
      x[i + 1] = b * cos + a * sin;
    } else {
      x[i] = d < half ? x[i] * cos - partner[i] * sin : x[i] * cos + partner[i] * sin;
    }
  }
}

__device__ __forceinline__ float power_of_2(int exponent) {
  return __uint_as_float(static_cast<unsigned>(exponent + 127) << 23);
}

// Largest magnitude over the lanes that share a row, then the power of two that brings it to
// [2^7, 2^8); 1 for a row of zeros or one that is not finite.
template <int kLanes>
__device__ __forceinline__ float row_power(float largest) {
#pragma unroll
  for (int d = kLanes / 2; d > 0; d /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, d));
  }
  if (!(largest > 0.0f && largest < INFINITY)) return 1.0f;
  const int exponent = static_cast<int>(__float_as_uint(largest) >> 23) - 127 - 7;
  return power_of_2(exponent < -100 ? -100 : exponent);
}

// Eight elements of a row as half, for 1-byte caches: of a bfloat16 row divided by a power of two
// of its own, since half's range is smaller. Returns that power. By the kLanes lanes that share a
// row.
template <int kLanes>
__device__ __forceinline__ float half_of_row(DType type, Chunk16& x) {
  float power = 1.0f;
  if (type == DType::kBFloat16) {
    float largest = 0.0f;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float2 y = float2_from(DType::kBFloat16, x.words[e]);
      largest = fmaxf(largest, fmaxf(fabsf(y.x), fabsf(y.y)));
    }
    power = row_power<kLanes>(largest);
    const float inverse = power_of_2(127 - static_cast<int>(__float_as_uint(power) >> 23));
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float2 y = float2_from(DType::kBFloat16, x.words[e]);
      x.words[e] = pack2<cute::half_t>(y.x * inverse, y.y * inverse);
    }
  }
  return power;
}

// Stores elements `column` .. `column` + 7 where K's bytes, two pairs to a register, will meet
// them: elements 4 t + {0, 1} go to 2 t, 4 t + {2, 3} to 8 + 2 t, of their block of 16. `place`:
// that of an even column.
template <class Place>
__device__ __forceinline__ void store_permuted(const Chunk16& x, int column, Place&& place) {
  const int block = column / 16 * 16;
  const int t = column % 16 / 4;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const int to = block + (e % 2) * 8 + 2 * (t + e / 2);
    *reinterpret_cast<std::uint32_t*>(place(to)) = x.words[e];
  }
}

// Asks for a work's rows of Q, so that they wait in L2 when the consumers get there. By one warp.
__device__ __forceinline__ void prefetch_q(const DecodeProblem& p, const Plan& plan, const Work& w,
                                           int head) {
  const SequenceView s = view_of(w);
  const int row_bytes = p.head_dim * 2;
  const int lines = (row_bytes + 127) / 128;
  const auto* q = static_cast<const std::uint8_t*>(p.q.data);
  for (int at = lane_index(); at < plan.rows() * lines; at += 32) {
    const int f = w.row0 + at / lines;
    if (f >= s.m * p.group) break;
    const int i = plan.row_of(f);
    const std::int64_t from = row_offset(p.q, s, i, bool(p.cu_seqlens_q)) +
                              (head * p.group + f - i * p.group) * p.q.head_stride;
    asm volatile("prefetch.global.L2 [%0];" ::"l"(q + 2 * from + at % lines * 128));
  }
}

template <class Traits>
__device__ inline void load_q(const DecodeProblem& p, const Plan& plan, const Work& w, int head,
                              std::uint8_t* smem_q, float* row_scale) {
  using Element = typename Traits::Element;
  constexpr int kChunks = Traits::kHeadDim / 8;  // of a row
  const SequenceView s = view_of(w);
  const typename Traits::QLayout layout;
#pragma unroll 2
  for (int at = thread_index(); at < plan.rows() * kChunks; at += kWarps * 32) {
    const int row = at / kChunks;
    const int column = at % kChunks * 8;
    const int f = w.row0 + row;
    const int i = plan.row_of(f);
    Chunk16 x{};
    const bool in = i < s.m && column < p.head_dim;
    const std::int64_t from = row_offset(p.q, s, i, bool(p.cu_seqlens_q)) +
                              (head * p.group + f - i * p.group) * p.q.head_stride;
    const auto* q = static_cast<const std::uint16_t*>(p.q.data) + from;
    if (in) x = *reinterpret_cast<const Chunk16*>(q + column);
    if constexpr (Traits::kConverting) {
      if (p.rope.on && in) {
        float y[8], partner[8] = {};
        for (int e = 0; e < 8; ++e) {
          y[e] = float_from(p.q.dtype, q + column + e);
          if (!p.rope.interleaved) {
            partner[e] = float_from(p.q.dtype, q + (column + e + p.head_dim / 2) % p.head_dim);
          }
        }
        rotate8(p.rope, p.head_dim, row_position(p, s, i), column, y, partner);
        for (int e = 0; e < 4; ++e) x.words[e] = pack2<Element>(y[2 * e], y[2 * e + 1]);
      }
    }
    auto* tile =
        reinterpret_cast<std::uint16_t*>(smem_q) + row / kWarpRows * (kWarpRows * Traits::kHeadDim);
    const int r = row % kWarpRows;
    if constexpr (!Traits::kBytes) {
      *reinterpret_cast<Chunk16*>(tile + layout(r, column)) = x;
    } else {
      const float power = half_of_row<kChunks>(p.q.dtype, x);
      if (column == 0) row_scale[row] = power;
      store_permuted(x, column, [&](int to) { return tile + layout(r, to); });
    }
  }
}

}  // namespace pagedecode::cuda
