// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Rows of K or V through registers into shared memory, converted to the element type of the
// products: any cache type, RoPE on K. For calls that cp.async cannot serve; 64 large-angle sine
// pairs a key and head make RoPE on read slower than memory, so nothing here is tuned.
#pragma once

#include "cuda/decode/load_q.cuh"

namespace pagedecode::cuda {

// `head`: first byte of the head in the cache; `offset`: of this lane's row from there; `live`: bit
// of each row that is to be read, others become zero; `s`, `key0`: for the positions of K's keys;
// 32 rows, from row `row0` of the stage on.
template <class Traits>
__device__ inline void convert_rows(const DecodeProblem& p, DType type, bool is_k,
                                    const std::uint8_t* head, std::int64_t offset,
                                    std::uint32_t live, const SequenceView& s, int key0, int row0,
                                    std::uint8_t* to) {
  using Element = typename Traits::Element;
  static_assert(Traits::kHeadDim == 256, "one row of 32 lanes, 8 columns each");
  const typename Traits::StageLayout layout;
  const int column = threadIdx.x % 32 * 8;
  const int size = type == DType::kFloat16 || type == DType::kBFloat16 ? 2 : 1;
  const bool rotate = is_k && p.rope.on;
#pragma unroll 1
  for (int row = 0; row < 32; ++row) {
    const std::uint8_t* from = head + __shfl_sync(~0u, offset, row);
    Chunk16 packed{};
    if ((live >> row & 1) && column < p.head_dim) {
      float x[8], partner[8] = {};
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        x[i] = float_from(type, from + (column + i) * size);
        if (rotate && !p.rope.interleaved) {
          partner[i] = float_from(type, from + (column + i + p.head_dim / 2) % p.head_dim * size);
        }
      }
      if (rotate) rotate8(p.rope, p.head_dim, key_position(p, s, key0 + row), column, x, partner);
#pragma unroll
      for (int i = 0; i < 4; ++i) packed.words[i] = pack2<Element>(x[2 * i], x[2 * i + 1]);
    }
    *reinterpret_cast<Chunk16*>(to + 2 * layout(row0 + row, column)) = packed;
  }
}

}  // namespace pagedecode::cuda
