// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// K or V of a tile by cp.async, 16 bytes a lane, each row through its own page: for pages that hold
// no box of TMA. Several warps share the rows of a tile; lane i of one knows the pages of its keys
// i, i + 32. Rows of no key of the work, or of a page out of the pool, become zeros, and nothing is
// read for them.
#pragma once

#include "cuda/decode_wgmma/traits.h"

namespace pagedecode::cuda {

// Where a lane's keys of a tile lie.
template <int kKeys>
struct RowPages {
  std::int32_t page[kKeys];   // -1: no key of the work; -2: the id is out of the pool
  std::int32_t token[kKeys];  // place in the page
};

template <int kKeys>
__device__ __forceinline__ RowPages<kKeys> read_row_pages(const DecodeProblem& p, const Work& w,
                                                          std::int64_t first_page, unsigned key0) {
  const auto page_size = static_cast<unsigned>(p.page_size);
  RowPages<kKeys> r;
#pragma unroll
  for (int j = 0; j < kKeys; ++j) {
    const unsigned key = key0 + threadIdx.x % 32 + 32 * j;
    r.page[j] = -1;
    r.token[j] = 0;
    if (key < static_cast<unsigned>(w.begin) || key >= static_cast<unsigned>(w.end)) continue;
    const unsigned index = key / page_size;
    r.token[j] = static_cast<int>(key - index * page_size);
    const std::int64_t id = page_id(p.pages, first_page, index);
    r.page[j] = id < 0 || id >= p.pages.num_pages ? -2 : static_cast<std::int32_t>(id);
  }
  return r;
}

// The pages of a work's tiles in turn, read two tiles before their use: with one, no tile could
// take less time than a read of the page table.
template <class Traits>
class RowPagesAhead {
 public:
  using Pages = RowPages<Traits::kLoaderRows / 32>;

  // `row0`: the warp's first row of a tile.
  __device__ RowPagesAhead(const DecodeProblem& p, const Work& w, std::int64_t first_page, int row0)
      : p_(p),
        w_(w),
        first_page_(first_page),
        key_((w.begin >> Traits::kTileLog2 << Traits::kTileLog2) + row0) {
    first_ = read();
    second_ = read();
  }
  __device__ __forceinline__ Pages next() {
    const Pages now = first_;
    first_ = second_;
    second_ = read();
    return now;
  }

 private:
  __device__ __forceinline__ Pages read() {
    const Pages r = read_row_pages<Traits::kLoaderRows / 32>(p_, w_, first_page_, key_);
    key_ += Traits::kTileKeys;
    return r;
  }

  const DecodeProblem& p_;
  const Work& w_;
  std::int64_t first_page_;
  unsigned key_;
  Pages first_, second_;
};

// Begins the copies of a warp's rows of a tile of one head of K or of V, whose first goes to `to`.
template <class Traits, int kKeys>
__device__ __forceinline__ void copy_rows(const CacheView& cache, int head,
                                          const RowPages<kKeys>& pages, std::uint64_t hint,
                                          std::uint8_t* to) {
  constexpr std::int64_t kSize = Traits::kBytes ? 1 : 2;
  constexpr int kPartChunks = Traits::kPartBytes / 16;
  constexpr int kLanes = Traits::kParts * kPartChunks;  // that copy a row
  constexpr int kRows = 32 / kLanes;                    // at a time
  // Turns at once, which hide each other's shuffles; a multiple of 8 rows, after which the swizzle
  // comes back.
  constexpr int kTurns = kRows == 1 ? 8 : 4;
  const int lane = threadIdx.x % 32;
  const int chunk = lane % kLanes;
  const std::uint32_t part = shared_address(to) + chunk / kPartChunks * Traits::kPartTile;
  const auto* base =
      static_cast<const std::uint8_t*>(cache.data) + head * cache.head_stride * kSize + chunk * 16;
#pragma unroll
  for (int j = 0; j < kKeys; ++j) {
    // In chunks of 16 bytes: pools are smaller than 64 GB (variants.h).
    const auto offset = static_cast<std::uint32_t>(
        (pages.page[j] * cache.page_stride + pages.token[j] * cache.token_stride) * kSize / 16);
    const std::uint32_t live = __ballot_sync(~0u, pages.page[j] >= 0);
#pragma unroll 1
    for (int row0 = 0; row0 < 32; row0 += kRows * kTurns) {
      std::uint32_t from[kTurns];
#pragma unroll
      for (int x = 0; x < kTurns; ++x) {
        from[x] = __shfl_sync(~0u, offset, row0 + x * kRows + lane / kLanes);
      }
#pragma unroll
      for (int x = 0; x < kTurns; ++x) {
        const int row = row0 + x * kRows + lane / kLanes;
        const bool in = live >> row & 1;
        asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(
                         part + (32 * j + row0) * Traits::kPartBytes +
                         Traits::place(x * kRows + lane / kLanes, chunk % kPartChunks)),
                     "l"(base + (in ? std::uint64_t{from[x]} * 16 : 0)), "r"(in ? 16 : 0), "l"(hint)
                     : "memory");
      }
    }
  }
}

}  // namespace pagedecode::cuda
