// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Masks and logit options of a tile that some row sees in part, or of every tile where options ask
// for it; and V's rows of such a tile that must not reach the product. Layout of s: softmax.cuh.
#pragma once

#include "cuda/decode/nonfinite.cuh"
#include "cuda/decode_wgmma/softmax.cuh"

namespace pagedecode::cuda {

// Products are turned into logits tile by tile, with a scale of 1 left for the softmax.
__device__ __forceinline__ bool logit_options(const DecodeProblem& p) {
  return p.softcap > 0.0f || p.alibi_slopes;
}

// Of a tile's keys in pages out of the pool, bit z: this thread's key z.
template <int kGroups>
__device__ __forceinline__ std::uint32_t own_bad_keys(const std::uint64_t (&bad_keys)[kGroups]) {
  std::uint64_t bad = bad_keys[0];
#pragma unroll
  for (int i = 1; i < kGroups; ++i) {
    if (thread_index() / 128 == i) bad = bad_keys[i];
  }
  const int place = thread_index() / 32 % 4 * 16 + lane_index() / 4;
  return static_cast<std::uint32_t>(bad >> place & 1) |
         static_cast<std::uint32_t>(bad >> (place + 8) & 1) << 1;
}

// Masks that are ranges of keys. `bad`: of a thread's key, whether it lies in a page out of the
// pool.
template <class Softmax, class Bad>
__device__ __forceinline__ void mask_ranges(const DecodeProblem& p, const Plan& plan, const Work& w,
                                            int key0, Bad&& bad,
                                            float (&s)[Softmax::kOwn * Softmax::kOwnKeys]) {
  const int window = p.window_left < 0 ? -1 : static_cast<int>(min64(p.window_left, w.n));
#pragma unroll
  for (int i = 0; i < Softmax::kOwn; ++i) {
    const int own = w.n - w.m + plan.row_of(w.row0 + Softmax::row_of(i));
    const int end = p.causal ? min(own + 1, w.n) : w.n;
    const int begin = window < 0 ? 0 : own - window;
#pragma unroll
    for (int c = 0; c < Softmax::kOwnKeys; ++c) {
      const int key = key0 + Softmax::key_of(c);
      float& x = s[Softmax::place_of(i, c)];
      if (bad(c)) x = NAN;
      if (key < begin || key >= end) x = -INFINITY;
    }
  }
}

// Soft-cap, then ALiBi, then any mask. Loops over a copy in local memory: long and rare code.
template <class Softmax, class Bad>
__device__ __forceinline__ void apply_rules(const DecodeProblem& p, const Plan& plan, const Work& w,
                                            int key0, Bad&& bad, const float* shared_scale,
                                            float (&s)[Softmax::kOwn * Softmax::kOwnKeys]) {
  constexpr int kCount = Softmax::kOwn * Softmax::kOwnKeys;
  const SequenceView view = view_of(w);
  const bool options = logit_options(p);
  float x[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) x[i] = s[i];
#pragma unroll 1
  for (int i = 0; i < Softmax::kOwn; ++i) {
    const int column = Softmax::row_of(i);
    const int row = plan.row_of(w.row0 + column);
    const bool real = row < w.m;
    const RowMask mask = real ? load_row(p, view, row) : RowMask{};
    const float natural = shared_scale[Softmax::kRowScales ? column : 0] * kLn2;
    const float slope = p.alibi_slopes && real
                            ? p.alibi_slopes[w.head * p.group + w.row0 + column - row * p.group]
                            : 0.0f;
#pragma unroll 1
    for (int c = 0; c < Softmax::kOwnKeys; ++c) {
      const int at = Softmax::place_of(i, c);
      const int key = key0 + Softmax::key_of(c);
      float y = x[at];
      if (options) {
        y *= natural;
        if (p.softcap > 0.0f) y = p.softcap * tanhf(y / p.softcap);
        if (p.alibi_slopes && real && key < w.n) {
          y += slope *
               static_cast<float>(saturating_sub64(key_position(p, view, key), mask.position));
        }
        y *= kLog2e;
      }
      if (bad(c)) y = NAN;
      // Rows past the last see all keys: they never become results.
      if (key >= w.n || (real && !visible(p, view, mask, key))) y = -INFINITY;
      x[at] = y;
    }
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) s[i] = x[i];
}

// Whichever of the two a tile needs.
template <class Softmax, class Bad>
__device__ __forceinline__ void mask_tile(const DecodeProblem& p, const Plan& plan, const Work& w,
                                          int key0, Bad&& bad, const float* shared_scale,
                                          float (&s)[Softmax::kOwn * Softmax::kOwnKeys]) {
  if (ranges_only(p) && !logit_options(p)) {
    mask_ranges<Softmax>(p, plan, w, key0, bad, s);
  } else {
    apply_rules<Softmax>(p, plan, w, key0, bad, shared_scale, s);
  }
}

// V of a tile that some row sees in part, before its product. Rows of no key of the work become
// zero. Whether others, that some row may not see, hold what is not finite: every thread gets it.
template <class Traits>
__device__ __forceinline__ bool blank_values(const DecodeProblem& p, const Work& w, int key0,
                                             std::uint8_t* v) {
  // With one row and no window or mask, no key that exists is hidden.
  const bool hidden = w.m > 1 || p.window_left >= 0 || p.draft_mask.kind != MaskKind::kNone;
  if (!hidden && key0 >= w.begin && key0 + Traits::kTileKeys <= w.end) return false;
  constexpr int kChunks = Traits::kTileBytes / 16;
  constexpr int kRowChunks = Traits::kPartBytes / 16;
  const auto key_of = [&](int chunk) { return key0 + chunk / kRowChunks % Traits::kTileKeys; };
  auto* chunks = reinterpret_cast<uint4*>(v);
  bool found = false;
  const std::uint32_t exponent = exponent_bits(Traits::type_of_values(p.v));
  const auto nonfinite = [&](std::uint32_t x) {
    return Traits::kBytes ? __vcmpeq4(x & exponent, exponent) : __vcmpeq2(x & exponent, exponent);
  };
#pragma unroll 2
  for (int i = thread_index() % Traits::kTeam; i < kChunks; i += Traits::kTeam) {
    if (key_of(i) < w.begin || key_of(i) >= w.end) {
      chunks[i] = uint4{0, 0, 0, 0};
    } else if (hidden) {
      const uint4 x = chunks[i];
      found |= (nonfinite(x.x) | nonfinite(x.y) | nonfinite(x.z) | nonfinite(x.w)) != 0;
    }
  }
  found &= p.v.dtype != DType::kInt8;
  fence_async();
  return any_of_team<Traits>(found);
}

// What is not finite in V of a tile becomes zero.
template <class Traits>
__device__ __forceinline__ void drop_nonfinite(DType type, std::uint8_t* v) {
  auto* words = reinterpret_cast<std::uint32_t*>(v);
  sync_team<Traits>();  // everyone has looked
#pragma unroll 1
  for (int i = thread_index() % Traits::kTeam; i < Traits::kTileBytes / 4; i += Traits::kTeam) {
    words[i] &= ~nonfinite_elements(type, words[i]);
  }
  fence_async();
  sync_team<Traits>();
}

// What is not finite in V of a tile that some row sees in part becomes zero, since 0 x NaN would
// reach the rows that do not see it; what it adds to the rows that do is added to their columns by
// hand. `p_tile`: P of the tile. Ends ready for wgmma.
template <class Traits, class Mainloop>
__device__ __forceinline__ void clean_values(const Work& w, int key0, std::uint8_t* v,
                                             std::uint8_t* p_tile, Mainloop& mainloop) {
  const DecodeProblem& p = mainloop.p;
  if (!blank_values<Traits>(p, w, key0, v)) return;
  const DType type = Traits::type_of(p.v);
  constexpr int kOwn = Traits::kRows / 4;
  constexpr int kWords = Traits::kPartBytes / 4;
  constexpr std::uint16_t kHidden = 0x8000;  // -0: no probability is that
  auto* words = reinterpret_cast<std::uint32_t*>(v);
  const int warp = thread_index() / 32;
  const int lane = lane_index();
  // P of this thread's row i for a token of the tile.
  const auto probability = [&](int i, int token) {
    return reinterpret_cast<std::uint16_t*>(p_tile + i / 2 * Traits::kPRowBlock + token * 16 +
                                            lane % 4 * 4) +
           i % 2;
  };
  // Bits of each warp's 16 keys that hold something not finite; there, P tells who does not see it.
  auto* keys_of_warp = reinterpret_cast<std::uint32_t*>(mainloop.shared.by_warp);
  std::uint32_t keys = 0;
#pragma unroll
  for (int z = 0; z < 2; ++z) {
    const int token = warp * 16 + lane / 4 + 8 * z;
    bool bad = false;
#pragma unroll 1
    for (int i = lane % 4; i < Traits::kParts * kWords; i += 4) {
      const int at = i / kWords * (Traits::kTileKeys * kWords) + token * kWords + i % kWords;
      bad |= nonfinite_elements(type, words[at]) != 0;
    }
    keys |= __reduce_or_sync(~0u, bad ? 1u << (lane / 4 + 8 * z) : 0u);
    if (keys >> (lane / 4 + 8 * z) & 1) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        if (mainloop.s[i / 2 * 4 + 2 * z + i % 2] == -INFINITY) *probability(i, token) = kHidden;
      }
    }
  }
  if (lane == 0) keys_of_warp[warp] = keys;
  sync_consumers<Traits>();
#pragma unroll 1
  for (int warp_of_keys = 0; warp_of_keys < Traits::kOwnKeys / 16; ++warp_of_keys) {
    const int from = mainloop.first_key / 16 + warp_of_keys;
#pragma unroll 1
    for (keys = keys_of_warp[from]; keys != 0; keys &= keys - 1) {
      const int token = from * 16 + __ffs(keys) - 1;
#pragma unroll
      for (int h = 0; h < Traits::kOwnBlocks; ++h) {
#pragma unroll
        for (int z = 0; z < 2; ++z) {
          const int byte = (64 * (mainloop.first_block + h) + Mainloop::element_of(2 * z)) *
                           (Traits::kBytes ? 1 : 2);
          const std::uint8_t* at = v + byte / Traits::kPartBytes * Traits::kPartTile +
                                   Traits::place(token, byte % Traits::kPartBytes / 16) + byte % 16;
          const std::uint32_t bits =
              Traits::kBytes ? *at : *reinterpret_cast<const std::uint16_t*>(at);
          if (nonfinite_elements(type, bits) == 0) continue;
          const float x = float_from(type, at);
#pragma unroll
          for (int i = 0; i < kOwn; ++i) {
            const std::uint16_t* weight = probability(i, token);
            if (*weight == kHidden) continue;
            float& o = mainloop.o[h][i / 2 * 4 + 2 * z + i % 2];
            // As the product would take it: 0 times infinity is NaN there, too.
            o = fmaf(float_from(Traits::kVariant.element, weight), x, o);
          }
        }
      }
    }
  }
  drop_nonfinite<Traits>(type, v);
}

}  // namespace pagedecode::cuda
