// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The compile-time side of one instance: element types, tiles, layouts of shared memory.
//
//   T = kKeys      keys of a stage for each of the four warps that consume
//   S = kStepKeys  keys of one softmax step: T, or 2 T
//   D = kHeadDim   padded head dim
//   R = kWarpRows  query rows of one warp
//
// Shared memory of a block: ring of stages of (K (4 T, D), V (4 T, D)); Q (rows, D), in whose place
// the epilogue exchanges accumulators; what SharedPlan lists.
#pragma once

#include <cute/tensor.hpp>

#include <cstdint>

#include "cuda/variants.h"

namespace pagedecode::cuda {

template <int kIndex>
struct DecodeTraits {
  static constexpr Variant kVariant = kVariants[kIndex];
  static constexpr bool kBytes = kVariant.cache_bytes() == 1;
  // K and V pass through registers on their way to shared memory, for what cp.async cannot do.
  static constexpr bool kConverting = kVariant.cache == CacheKind::kAny;
  static constexpr bool kOptions = kVariant.options;
  // Of the matrix products, Q and P.
  using Element =
      std::conditional_t<kVariant.element == DType::kFloat16, cute::half_t, cute::bfloat16_t>;
  // Of K and V in shared memory: Element, or a byte of any 1-byte type.
  using Cache = std::conditional_t<kBytes, std::uint8_t, Element>;
  static constexpr int kHeadDim = kVariant.head_dim;
  static constexpr int kRowBytes = kVariant.row_bytes();
  static constexpr int kKeys = kVariant.keys;
  static constexpr int kStepKeys = kVariant.step_keys;
  // Q is read from shared memory again for each step where accumulators leave it no registers.
  static constexpr bool kQInRegisters = kHeadDim <= 128;

  using Atom =
      std::conditional_t<std::is_same_v<Element, cute::half_t>, cute::SM80_16x8x16_F32F16F16F32_TN,
                         cute::SM80_16x8x16_F32BF16BF16F32_TN>;
  // One warp; two n blocks at a time, for 4-matrix ldmatrix of B.
  using Mma =
      cute::TiledMMA<cute::MMA_Atom<Atom>, cute::Layout<cute::Shape<cute::_1, cute::_1, cute::_1>>,
                     cute::Tile<cute::_16, cute::_16, cute::_16>>;

  // The type of K or V in shared memory; a constant where the variant knows it.
  __device__ __forceinline__ static DType type_in_shared(DType cache) {
    if (kVariant.cache == CacheKind::kE4M3) return DType::kFloat8E4M3;
    if (kVariant.cache == CacheKind::kBytes) return cache;
    return kVariant.element;
  }

  // Rows of 16-bit units, swizzled so that 8 rows of ldmatrix meet 8 different bank groups. Blocks
  // of 8 rows follow each other, so that the tiles of neighbouring warps are one longer tile.
  template <int kRows, int kUnits>
  static constexpr auto swizzled() {
    using namespace cute;
    constexpr int kAtom = kUnits % 64 == 0 ? 64 : 32;
    using Sw = std::conditional_t<kAtom == 64, Swizzle<3, 3, 3>, Swizzle<2, 3, 3>>;
    auto atom = composition(Sw{}, Layout<Shape<_8, Int<kAtom>>, Stride<Int<kAtom>, _1>>{});
    return tile_to_shape(atom, Shape<Int<kRows>, Int<kUnits>>{}, Step<_2, _1>{});
  }
  // K or V of a step, in 16-bit units: one element, or two 1-byte ones.
  static constexpr int kUnits = kRowBytes / 2;
  using KvLayout = decltype(swizzled<kStepKeys, kUnits>());  // (S, kUnits)
  using VtLayout = decltype(cute::composition(               // (kUnits, S)
      KvLayout{}, cute::Layout<cute::Shape<cute::Int<kUnits>, cute::Int<kStepKeys>>,
                               cute::Stride<cute::Int<kStepKeys>, cute::_1>>{}));
  using QLayout = decltype(swizzled<kWarpRows, kHeadDim>());  // (R, D)

  static constexpr int kStageKeys = kWarps * kKeys;
  static constexpr int kHalfBytes = kStageKeys * kRowBytes;      // K, or V, of a stage
  using StageLayout = decltype(swizzled<kStageKeys, kUnits>());  // (kStageKeys, kUnits)
};

}  // namespace pagedecode::cuda
