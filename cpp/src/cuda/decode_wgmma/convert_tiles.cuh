// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The converting warps, where query rows are first and the cache has 1-byte elements: one for K,
// one for V. They turn each tile that has landed in the loading ring into half precision in the
// consumers' ring, which then is as with a 16-bit cache: each key is converted once for all rows.
#pragma once

#include "cuda/decode/convert.cuh"
#include "cuda/decode/pipeline.cuh"
#include "cuda/decode_wgmma/traits.h"

namespace pagedecode::cuda {

// Converts tiles of K, or of V. A warp's; each lane has 16 elements at a time. The eight lanes that
// reach shared memory together read 128 bytes and write twice 128 of 256: of one token the halves
// would share banks, so they have four chunks of each of two tokens, whose swizzles differ in bits
// 0 and 2.
template <class Traits>
class TileConverter {
 public:
  __device__ TileConverter() {
    const int lane = threadIdx.x % 32;
    const int chunk = kWide ? lane / 8 % 2 * 4 + lane % 4 : lane % 4;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int token = kWide ? (turn * 2 + lane / 16) ^ (lane / 4 % 2 * 5) : lane / 4;
      from_[turn] = Traits::template place<Traits::kLoadPartBytes>(token, chunk);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        to_[turn][half] =
            chunk / 4 * Traits::kPartTile + Traits::place(token, chunk * 2 % 8 + half);
      }
    }
  }

  __device__ __forceinline__ void convert(DType type, const std::uint8_t* from,
                                          std::uint8_t* to) const {
    if (type == DType::kFloat8E4M3) {
      convert_from<DType::kFloat8E4M3>(from, to);
    } else if (type == DType::kFloat8E5M2) {
      convert_from<DType::kFloat8E5M2>(from, to);
    } else {
      convert_from<DType::kInt8>(from, to);
    }
  }

 private:
  static_assert(Traits::kLoadParts == 1 && Traits::kKeyWords == 1);
  static constexpr bool kWide = Traits::kLoadPartBytes == 128;
  static constexpr int kTurns = kWide ? 2 : 1;  // of 8 tokens
  static constexpr int kCount = 4;              // at once, which hide each other's latencies
  static constexpr int kTokens = 8 * kCount / kTurns;

  template <DType kType>
  __device__ __forceinline__ void convert_from(const std::uint8_t* from, std::uint8_t* to) const {
#pragma unroll 1
    for (int token = 0; token < Traits::kTileKeys; token += kTokens) {
      uint4 x[kCount];
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        x[i] = *reinterpret_cast<const uint4*>(from + from_[i % kTurns] +
                                               i / kTurns * (8 * Traits::kLoadPartBytes));
      }
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const std::uint32_t in[4] = {x[i].x, x[i].y, x[i].z, x[i].w};
        std::uint32_t out[8];
        half2_from_bytes<4>(kType, in, out);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const std::uint32_t* const y = out + 4 * half;
          *reinterpret_cast<uint4*>(to + to_[i % kTurns][half] + i / kTurns * (8 * 128)) = {
              y[0], y[1], y[2], y[3]};
        }
      }
      from += kTokens * Traits::kLoadPartBytes;
      to += kTokens * 128;
    }
  }

  int from_[kTurns];  // this lane's places
  int to_[kTurns][2];
};

// All tiles of K, or of V, of all works: warp 0 has K's, warp 1 V's.
template <class Traits>
__device__ __forceinline__ void convert_works(const DecodeProblem& p, WgmmaStorage<Traits>& shared,
                                              int warp) {
  static_assert(Traits::kConverters == 2);
  const bool values = warp == 1;
  const DType type = Traits::type_of(values ? p.v : p.k);
  const int lane = threadIdx.x % 32;
  const TileConverter<Traits> converter;
  auto& loads = shared.loads;
  RingPosition works, from, to;
#pragma unroll 1
  while (true) {
    shared.full_work[works.stage].wait(works.parity);
    const Work& w = shared.works[works.stage];
    const bool more = w.seq >= 0;
    int tiles = more ? tiles_of<Traits>(w) : 0;
    __syncwarp();
    if (lane == 0) shared.empty_work[works.stage].arrive();
    works.advance(kWgmmaWorks);
    if (!more) return;
#pragma unroll 1
    for (; tiles > 0; --tiles) {
      (values ? loads.full_v : loads.full_k)[from.stage].wait(from.parity);
      (values ? shared.empty_v : shared.empty_k)[to.stage].wait(to.parity ^ 1);
      test_delay();
      converter.convert(type, loads.kv[from.stage][values], shared.kv[to.stage][values]);
      if (!values && lane == 0) shared.bad[to.stage][0] = loads.bad[from.stage][0];
      fence_async();
      arrive_as_warp((values ? loads.empty_v : loads.empty_k)[from.stage]);
      arrive_as_warp((values ? shared.full_v : shared.full_k)[to.stage]);
      from.advance(Traits::kLoadStages);
      to.advance(Traits::kStages);
    }
  }
}

}  // namespace pagedecode::cuda
