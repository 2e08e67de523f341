// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The two products on wgmma, CuTe's atoms of the right width. Descriptors, as found by trying:
// with the 128-byte swizzle, rows (or 8-token groups, MN-major) of 128 bytes in atoms of 1024; P
// without swizzle, core matrices of 8 tokens by 8 rows, 128 bytes apart along tokens.
#pragma once

#include <cute/arch/mma_sm90.hpp>

#include <utility>

#include "cuda/decode_wgmma/traits.h"

namespace pagedecode::cuda {

namespace wgmma {

using Major = cute::SM90::GMMA::Major;
using cute::SM90::GMMA::ScaleOut;

enum Swizzle : std::uint32_t { kNone = 0, k128Bytes = 1 };

// A matrix in shared memory, as its descriptor's lower word: where it begins, in 16 bytes. One that
// begins later is one addition away: descriptors are made between the products, in the same thread.
struct Place {
  std::uint32_t low;

  __device__ __forceinline__ Place(std::uint32_t address, int leading)
      : low((address >> 4) + (static_cast<std::uint32_t>(leading >> 4) << 16)) {}
  template <int kStride, Swizzle kSwizzle>
  __device__ __forceinline__ std::uint64_t descriptor(int later) const {
    constexpr std::uint32_t kHigh = static_cast<std::uint32_t>(kStride >> 4) | kSwizzle << 30;
    return static_cast<std::uint64_t>(kHigh) << 32 | (low + static_cast<std::uint32_t>(later >> 4));
  }
};

template <class Element, int kN, Major kA, Major kB>
using SharedOp =
    decltype(cute::SM90::GMMA::ss_op_selector<
             Element, Element, float, cute::Shape<cute::_64, cute::Int<kN>, cute::_16>, kA, kB>());
template <class Element, int kN, Major kB>
using RegisterOp =
    decltype(cute::SM90::GMMA::rs_op_selector<Element, Element, float,
                                              cute::Shape<cute::_64, cute::Int<kN>, cute::_16>,
                                              Major::K, kB>());

// d (+)= a b
template <class Op, int kCount, std::size_t... kI>
__device__ __forceinline__ void fma(std::uint64_t a, std::uint64_t b, float (&d)[kCount], bool add,
                                    std::index_sequence<kI...>) {
  Op::fma(a, b, d[kI]..., add ? ScaleOut::One : ScaleOut::Zero);
}
template <class Op, int kCount, std::size_t... kI>
__device__ __forceinline__ void fma(const std::uint32_t (&a)[4], std::uint64_t b,
                                    float (&d)[kCount], bool add, std::index_sequence<kI...>) {
  Op::fma(a[0], a[1], a[2], a[3], b, d[kI]..., add ? ScaleOut::One : ScaleOut::Zero);
}
template <class Op, class A, int kCount>
__device__ __forceinline__ void fma(const A& a, std::uint64_t b, float (&d)[kCount], bool add) {
  fma<Op>(a, b, d, add, std::make_index_sequence<kCount>{});
}

// Keeps the compiler from moving uses of a product's registers over its start or the wait.
template <class T, int kCount>
__device__ __forceinline__ void fence(T (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) cute::warpgroup_fence_operand(d[i]);
}

}  // namespace wgmma

}  // namespace pagedecode::cuda
