// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The consumer: one warp's S = Q K^T, softmax, O += P V over one step's keys, on mma.sync m16n8k16.
//
// 1-byte caches, with a 16-bit Q: ldmatrix moves pairs of bytes as 16-bit units, and registers turn
// them into half pairs. For K, unit (2 t, 2 t + 1) of a thread is elements 4 t .. 4 t + 3: the two
// halves of the register serve as one k block if Q's columns are permuted alike (load_q.cuh). For
// V (transposed), a register is two tokens by two elements: one byte permute makes two registers,
// of elements 2 g and 2 g + 1, so accumulator blocks 2 j and 2 j + 1 hold even and odd elements of
// block j (see output_column).
#pragma once

#include "cuda/decode/convert.cuh"
#include "cuda/decode/mask.cuh"
#include "cuda/decode/softmax.cuh"
#include "cuda/decode/traits.h"

namespace pagedecode::cuda {

// Column of O of a thread's accumulator (e, ., n), e of {0, 1}.
template <class Traits>
__device__ __forceinline__ int output_column(int e, int n) {
  const int t = lane_index() % 4;
  return Traits::kBytes ? (n / 2) * 16 + 4 * t + 2 * e + n % 2 : n * 8 + 2 * t + e;
}

template <class Traits>
struct Mainloop {
  using Element = typename Traits::Element;
  using Mma = typename Traits::Mma;
  static constexpr int kKeys = Traits::kStepKeys;
  static constexpr int kHeadDim = Traits::kHeadDim;
  static constexpr int kRows = OnlineSoftmax::kRows;
  static constexpr int kQBlocks = Traits::kQInRegisters ? kHeadDim / 16 : 1;
  static constexpr int kUnits = Traits::kUnits;

  using OLayout =
      cute::Layout<cute::Shape<cute::Shape<cute::_2, cute::_2>, cute::_1, cute::Int<kHeadDim / 8>>>;
  using SLayout =
      cute::Layout<cute::Shape<cute::Shape<cute::_2, cute::_2>, cute::_1, cute::Int<kKeys / 8>>>;
  using QFragment = cute::Layout<
      cute::Shape<cute::Shape<cute::_2, cute::_2, cute::_2>, cute::_1, cute::Int<kQBlocks>>>;

  decltype(cute::make_tensor<float>(OLayout{})) rO;      // ((2, 2), 1, D / 8)
  decltype(cute::make_tensor<Element>(QFragment{})) rQ;  // ((2, 2, 2), 1, D / 16)
  OnlineSoftmax softmax;
  float scale[kRows];  // of raw products, to logits in base 2

  __device__ __forceinline__ static int lane() { return threadIdx.x % 32; }

  // Q of the warp's rows, (R, D) in shared memory.
  __device__ __forceinline__ void begin(const Element* q) {
    cute::clear(rO);
    softmax.clear();
    if constexpr (Traits::kQInRegisters) {
#pragma unroll
      for (int k = 0; k < kQBlocks; ++k) load_q_block(q, k, rQ, k);
    }
  }

  // Block k of Q to block `to` of a fragment.
  template <class RQ>
  __device__ __forceinline__ static void load_q_block(const Element* q, int k, RQ& rQ, int to) {
    using namespace cute;
    auto sQ = make_tensor(make_smem_ptr(q), typename Traits::QLayout{});  // (R, D)
    auto copy_q = make_tiled_copy_A(Copy_Atom<SM75_U32x4_LDSM_N, Element>{}, Mma{});
    auto thread = copy_q.get_slice(lane());
    auto tXsQ = thread.partition_S(sQ);
    auto tXrQ = thread.retile_D(rQ);
    copy(copy_q, tXsQ(_, _, k), tXrQ(_, _, to));
  }

  template <class RS, class RK>
  __device__ __forceinline__ void multiply_q(const Element* q, int k, RK&& rKk, RS& rS) {
    using namespace cute;
    if constexpr (Traits::kQInRegisters) {
      gemm(Mma{}, rQ(_, _, k), rKk, rS);
    } else {
      auto rOne = make_fragment_like(rQ);
      load_q_block(q, k, rOne, 0);
      gemm(Mma{}, rOne(_, _, 0), rKk, rS);
    }
  }

  // rS ((2, 2), 1, S / 8) = Q K^T of a step.
  template <class RS>
  __device__ __forceinline__ void scores(const Element* q, const std::uint8_t* k_tile, DType type,
                                         RS& rS) {
    using namespace cute;
    clear(rS);
    auto mma = Mma{}.get_slice(lane());
    // (S, kUnits): elements, or pairs of bytes in the guise of one
    auto sK = make_tensor(make_smem_ptr(reinterpret_cast<const Element*>(k_tile)),
                          typename Traits::KvLayout{});
    auto copy_k = make_tiled_copy_B(Copy_Atom<SM75_U32x4_LDSM_N, Element>{}, Mma{});
    auto thread = copy_k.get_slice(lane());
    auto tXsK = thread.partition_S(sK);
    auto rK = mma.partition_fragment_B(sK);  // ((2, 2), S / 8, kUnits / 16)
    auto tXrK = thread.retile_D(rK);
#pragma unroll
    for (int k = 0; k < kUnits / 16; ++k) {
      copy(copy_k, tXsK(_, _, k), tXrK(_, _, k));
      if constexpr (!Traits::kBytes) {
        multiply_q(q, k, rK(_, _, k), rS);
      } else {
        auto words = recast<std::uint32_t>(rK(_, _, k));  // ((1, 2), S / 8)
        constexpr int kBlocks = kKeys / 8;
        std::uint32_t in[2 * kBlocks], out[4 * kBlocks];
#pragma unroll
        for (int i = 0; i < 2 * kBlocks; ++i) in[i] = words(i);
        half2_from_bytes(type, in, out);
        auto rHalf = make_tensor<Element>(Layout<Shape<Shape<_2, _2>, Int<kBlocks>, _2>>{});
        auto half_words = recast<std::uint32_t>(rHalf);  // ((1, 2), S / 8, 2)
#pragma unroll
        for (int i = 0; i < 4 * kBlocks; ++i) {
          // Word i: byte pair i % 2 of register i / 2 % 2 of n block i / 4.
          half_words((i % 2) + 2 * (i / 4) + 2 * kBlocks * (i / 2 % 2)) = out[i];
        }
        multiply_q(q, 2 * k, rHalf(_, _, 0), rS);
        multiply_q(q, 2 * k + 1, rHalf(_, _, 1), rS);
      }
    }
  }

  // rO += P V of a step; rS holds P in float32.
  template <class RS>
  __device__ __forceinline__ void accumulate(const std::uint8_t* v_tile, DType type, RS& rS) {
    using namespace cute;
    auto mma = Mma{}.get_slice(lane());
    // P as A: k block j is accumulator blocks 2 j and 2 j + 1.
    auto rP = make_tensor<Element>(Layout<Shape<Shape<_2, _2, _2>, _1, Int<kKeys / 16>>>{});
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        rP(make_coord(i % 2, i / 2, n % 2), 0, n / 2) =
            static_cast<Element>(rS(make_coord(i % 2, i / 2), 0, n));
      }
    }
    auto sVt = make_tensor(make_smem_ptr(reinterpret_cast<const Element*>(v_tile)),
                           typename Traits::VtLayout{});  // (kUnits, S)
    auto copy_v = make_tiled_copy_B(Copy_Atom<SM75_U16x8_LDSM_T, Element>{}, Mma{});
    auto thread = copy_v.get_slice(lane());
    auto tXsV = thread.partition_S(sVt);
    auto rV = mma.partition_fragment_B(sVt);  // ((2, 2), kUnits / 8, S / 16)
    auto tXrV = thread.retile_D(rV);
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      copy(copy_v, tXsV(_, _, k), tXrV(_, _, k));
      if constexpr (!Traits::kBytes) {
        gemm(Mma{}, rP(_, _, k), rV(_, _, k), rO);
      } else {
        constexpr int kBlocks = kUnits / 8;
        auto words = recast<std::uint32_t>(rV(_, _, k));  // ((1, 2), kUnits / 8)
        std::uint32_t in[2 * kBlocks], out[4 * kBlocks];
#pragma unroll
        for (int i = 0; i < 2 * kBlocks; ++i) in[i] = __byte_perm(words(i), 0, 0x3120);
        half2_from_bytes(type, in, out);
        auto rHalf = make_tensor<Element>(Layout<Shape<Shape<_2, _2>, Int<2 * kBlocks>>>{});
        auto half_words = recast<std::uint32_t>(rHalf);  // ((1, 2), D / 8)
#pragma unroll
        for (int i = 0; i < 4 * kBlocks; ++i) {
          // Word i: element i % 2 of register i / 2 % 2 of unit block i / 4.
          half_words((i / 2 % 2) + 2 * (2 * (i / 4) + i % 2)) = out[i];
        }
        gemm(Mma{}, rP(_, _, k), rHalf, rO);
      }
    }
  }
};

}  // namespace pagedecode::cuda
