// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The loading warps: each walks the block's works and has its share of K, of V, or of both, brought
// for each tile, as far ahead as the stages go, over the ends of works. One hands the works to the
// consumers.
//   pages of a multiple of kTmaTokens: by TMA, box by box through the page table. Lane i holds the
//     page of box i of the next 32; those after are read before they are needed. A box with no key
//     of the work, or whose page id is out of the pool, is asked for outside the tensor: TMA fills
//     it with zeros and reads nothing.
//   other pages: by cp.async, row by row (load_rows.cuh), to the same places.
#pragma once

#include <cuda.h>

#include <cute/arch/copy_sm90_tma.hpp>

#include "cuda/decode/load_q.cuh"
#include "cuda/decode/pipeline.cuh"
#include "cuda/decode_wgmma/load_rows.cuh"

namespace pagedecode::cuda {

template <class Traits>
class WgmmaLoader {
 public:
  // The warp that hands works over: by TMA the last, so that the first keys are asked for before.
  static constexpr int kHandsOver = Traits::kTma ? Traits::kLoaders - 1 : 0;

  __device__ WgmmaLoader(const DecodeProblem& p, const Plan& plan, const CUtensorMap& k,
                         const CUtensorMap& v, WgmmaStorage<Traits>& shared)
      : p_(p), plan_(plan), k_(k), v_(v), shared_(shared) {
    warp_ = static_cast<int>(threadIdx.x / 32) - Traits::kConsumerWarps;
    box_log2_ = 6;
    while (p.page_size & ((1 << box_log2_) - 1)) --box_log2_;
    // Keys that are read once leave L2 first, so that partial states stay: up to 7 % at 32 rows.
    using Hint = cute::TMA::CacheHintSm90;
    hint_ = static_cast<std::uint64_t>(plan.row_tiles_max == 1 ? Hint::EVICT_FIRST
                                                               : Hint::EVICT_NORMAL);
  }

  // All works of one head of the chunk.
  __device__ __forceinline__ void load_head(const ChunkStart& start, int chunk, int head_lane,
                                            int head) {
    WorkIterator works(p_, plan_, start, chunk, head_lane);
    Work w;
    while (works.next_keys(w, [&](std::int32_t b) { return load_shape(p_, plan_, b); })) {
      w.head = head;
      if constexpr (Traits::kTma) {
        load_boxes_of(w, works);
      } else if (warp_ < Traits::kShares) {
        copy_rows_of<true>(w, works);
      } else {
        copy_rows_of<false>(w, works);
      }
    }
  }

  // Tells the consumers that there is no more. By the warp that hands works over.
  __device__ __forceinline__ void finish() {
    Work w{};
    w.seq = -1;
    hand_over(w);
  }

 private:
  static constexpr int kFlight = wgmma_flight(Traits::kVariant);
  static constexpr int kTileLog2 = Traits::kTileLog2;

  // A lane's box, as read from the page table.
  struct Box {
    std::int64_t page;
    std::int32_t token;  // place in the page; -1: no key of the work
  };

  __device__ __forceinline__ static int lane() { return threadIdx.x % 32; }

  __device__ __forceinline__ void hand_over(const Work& w) {
    shared_.empty_work[works_.stage].wait(works_.parity ^ 1);
    test_delay();
    if (lane() == 0) {
      shared_.works[works_.stage] = w;
      if constexpr (Traits::kGathers) {
        if (w.splits > 1) shared_.gathers[w.split == 0] = w;
      }
      shared_.full_work[works_.stage].arrive();
    }
    works_.advance(kWgmmaWorks);
  }

  // Box number `box`, counted from key 0 of the sequence.
  __device__ __forceinline__ Box read_box(const Work& w, std::int64_t first_page, int box) const {
    Box b{-1, -1};
    const std::int64_t key = static_cast<std::int64_t>(box) << box_log2_;
    if (key >= w.end || key + (1 << box_log2_) <= w.begin) return b;
    const auto page_size = static_cast<unsigned>(p_.page_size);
    const unsigned index = static_cast<unsigned>(key) / page_size;
    b.token = static_cast<int>(static_cast<unsigned>(key) - index * page_size);
    b.page = page_id(p_.pages, first_page, index);
    return b;
  }

  __device__ __forceinline__ void load_boxes_of(Work& w, const WorkIterator& works) {
    const std::int64_t first_page = works.first_page();
    const int boxes_log2 = kTileLog2 - box_log2_;  // of a tile
    int box = w.begin >> kTileLog2 << boxes_log2;
    int tiles = tiles_of<Traits>(w);
    Box next = read_box(w, first_page, box + lane());
    if (warp_ == kHandsOver) {
      // While page ids are on their way.
      works.find_splits(w);
      hand_over(w);
      prefetch_q(p_, plan_, w, w.head);
    }
#pragma unroll 1
    while (tiles > 0) {
      const bool in_pool = next.token >= 0 && next.page >= 0 && next.page < p_.pages.num_pages;
      const int page = in_pool ? static_cast<int>(next.page) : -1;
      const int token = next.token;
      const std::uint32_t bad = __ballot_sync(~0u, token >= 0 && !in_pool);
      const int now = min(tiles, 32 >> boxes_log2);
      tiles -= now;
      box += 32;
      if (tiles > 0) next = read_box(w, first_page, box + lane());
#pragma unroll 1
      for (int t = 0; t < now; ++t) {
        load_tile(w.head, t << boxes_log2, bad >> (t << boxes_log2), page, token);
      }
    }
  }

  // This warp's share of the tile whose first box lane `from` holds.
  __device__ __forceinline__ void load_tile(int head, int from, std::uint32_t bad, int page,
                                            int token) {
    const int boxes = Traits::kTileKeys >> box_log2_;
    if constexpr (Traits::kLoaders == 1) {
      load_matrix(false, head, from, 0, boxes, bad, page, token);
      load_matrix(true, head, from, 0, boxes, bad, page, token);
    } else {
      // A single box is the first warp's.
      const int share = warp_ % Traits::kShares;
      const int count = boxes >= Traits::kShares ? boxes / Traits::kShares : share == 0;
      load_matrix(warp_ >= Traits::kShares, head, from, count * share, count, bad, page, token);
    }
    ring_.advance(Traits::kLoadStages);
    if (asked_ < kFlight) {
      ++asked_;
    } else {
      landed_.advance(Traits::kLoadStages);
    }
  }

  // `count` boxes of K, or V, from the tile's box `first` on.
  __device__ __forceinline__ void load_matrix(bool values, int head, int from, int first, int count,
                                              std::uint32_t bad, int page, int token) {
    throttle(values);
    auto& ring = shared_.load_ring();
    const int stage = ring_.stage;
    (values ? ring.empty_v : ring.empty_k)[stage].wait(ring_.parity ^ 1);
    test_delay();
    if (!values && warp_ == 0) tell_bad_keys(stage, bad);
    load_boxes(values ? v_ : k_, ring.kv[stage][values],
               (values ? ring.full_v : ring.full_k)[stage], head, from, first, count, page, token);
  }

  // Which keys of a tile lie in pages out of the pool: bit i of `bad` is box i.
  __device__ __forceinline__ void tell_bad_keys(int stage, std::uint32_t bad) {
    const int boxes = Traits::kTileKeys >> box_log2_;
    std::uint64_t keys[Traits::kKeyWords] = {};
    if (bad & ((2u << (boxes - 1)) - 1)) {
#pragma unroll
      for (int word = 0; word < Traits::kKeyWords; ++word) {
#pragma unroll 1
        for (int i = 0; i < 64; ++i) {
          keys[word] |= static_cast<std::uint64_t>(bad >> ((word * 64 + i) >> box_log2_) & 1) << i;
        }
      }
    }
    if (lane() != 0) return;
#pragma unroll
    for (int i = 0; i < Traits::kKeyWords; ++i) shared_.load_ring().bad[stage][i] = keys[i];
  }

  // At most kFlight tiles of K, and of V, are on their way; the stages hold what has landed, for
  // the times when consumers pause. More on the way is not more bandwidth, but longer queues: in
  // them, SMs whose GPC has fewer of them get more, and end up to a quarter earlier than the last.
  __device__ __forceinline__ void throttle(bool values) {
    if (asked_ < kFlight) return;
    auto& ring = shared_.load_ring();
    (values ? ring.full_v : ring.full_k)[landed_.stage].wait(landed_.parity);
  }

  // Arrives, for no box, too. By 4, 2 or 1 at a time: a turn takes about 280 clocks, from the
  // shuffles to the last request (1-byte caches with boxes of 8 tokens one at a time: 1.75 x the
  // ceiling).
  __device__ __forceinline__ void load_boxes(const CUtensorMap& map, std::uint8_t* to,
                                             Barrier& full, int head, int from, int first,
                                             int count, int page, int token) {
    if (lane() == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full.address()),
                   "r"(count * (Traits::kLoadTileBytes >> kTileLog2) << box_log2_)
                   : "memory");
    }
    if (count == 1) {
      request<1>(map, to, full, head, from, first, page, token);
    } else if (count == 2) {
      request<2>(map, to, full, head, from, first, page, token);
    } else {
#pragma unroll 1
      for (int i = first; i < first + count; i += 4) {
        request<4>(map, to, full, head, from, i, page, token);
      }
    }
    __syncwarp();
  }

  // Boxes i .. i + kCount - 1 of a tile.
  template <int kCount>
  __device__ __forceinline__ void request(const CUtensorMap& map, std::uint8_t* to, Barrier& full,
                                          int head, int from, int i, int page, int token) {
    int box_page[kCount], box_token[kCount];
#pragma unroll
    for (int x = 0; x < kCount; ++x) {
      box_page[x] = __shfl_sync(~0u, page, from + i + x);
      box_token[x] = __shfl_sync(~0u, token, from + i + x);
    }
    if (lane() != 0) return;
#pragma unroll
    for (int x = 0; x < kCount; ++x) {
#pragma unroll
      for (int part = 0; part < Traits::kLoadParts; ++part) {
        asm volatile(
            "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
            ".L2::cache_hint [%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(
                shared_address(to + part * Traits::kLoadPartTile +
                               ((i + x) << box_log2_) * Traits::kLoadPartBytes)),
            "l"(&map), "r"(part * (Traits::kOneByte ? 128 : 64)), "r"(head),
            "r"(max(box_token[x], 0)), "r"(box_page[x]), "r"(full.address()), "l"(hint_)
            : "memory");
      }
    }
  }

  // A warp's rows of K, or V, of a work. With K go which of its keys are bad, and, by the first
  // warp, the work itself.
  template <bool kKeys>
  __device__ __forceinline__ void copy_rows_of(Work& w, const WorkIterator& works) {
    auto& empty = kKeys ? shared_.empty_k : shared_.empty_v;
    auto& full = kKeys ? shared_.full_k : shared_.full_v;
    const int row0 = warp_ % Traits::kShares * Traits::kLoaderRows;
    RowPagesAhead<Traits> pages(p_, w, works.first_page(), row0);
    if (warp_ == kHandsOver) {
      works.find_splits(w);
      hand_over(w);
      prefetch_q(p_, plan_, w, w.head);
    }
#pragma unroll 1
    for (int tiles = tiles_of<Traits>(w); tiles > 0; --tiles) {
      const auto now = pages.next();
      const int stage = ring_.stage;
      empty[stage].wait(ring_.parity ^ 1);
      test_delay();
      if constexpr (kKeys) {
        auto* const bad = reinterpret_cast<std::uint32_t*>(shared_.bad[stage]) + row0 / 32;
#pragma unroll
        for (int j = 0; j < Traits::kLoaderRows / 32; ++j) {
          const std::uint32_t keys = __ballot_sync(~0u, now.page[j] == -2);
          if (lane() == 0) bad[j] = keys;
        }
        if (lane() == 0) full[stage].arrive();
      }
      copy_rows<Traits>(kKeys ? p_.k : p_.v, w.head, now, hint_,
                        shared_.kv[stage][!kKeys] + row0 * Traits::kPartBytes);
      full[stage].arrive_after_copies();
      ring_.advance(Traits::kStages);
    }
  }

  const DecodeProblem& p_;
  const Plan& plan_;
  const CUtensorMap& k_;
  const CUtensorMap& v_;
  WgmmaStorage<Traits>& shared_;
  int warp_;  // of those that load
  int box_log2_;
  std::uint64_t hint_;
  RingPosition ring_;
  RingPosition works_;
  int asked_ = 0;        // tiles, up to kFlight
  RingPosition landed_;  // the tile that is kFlight back
};

}  // namespace pagedecode::cuda
