// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The producer: each warp copies its own sub-tile of every step of the block into a ring of stages
// with cp.async, through the page table, and runs ahead of the consumer over the ends of items.
// Lane i knows the address of key i of the sub-tile; page ids are read one step before their use.
// Keys outside the work's range are zero-filled, so that what lies there cannot matter.
#pragma once

#include "cuda/decode/load_converting.cuh"
#include "cuda/decode/traits.h"
#include "cuda/schedule/locate.cuh"

namespace pagedecode::cuda {

__device__ __forceinline__ void cp_async_wait_stages(int pending) {
  switch (pending) {
    case 0: cute::cp_async_wait<0>(); break;
    case 1: cute::cp_async_wait<1>(); break;
    case 2: cute::cp_async_wait<2>(); break;
    case 3: cute::cp_async_wait<3>(); break;
    default: cute::cp_async_wait<4>(); break;
  }
}

// NOTE: a call, so that the iterator lives in local memory: it is needed at the ends of items only,
// and its 30 registers are not to be had beside the accumulators of 32 rows.
__device__ __noinline__ inline bool next_work(const DecodeProblem& p, const Plan& plan,
                                              WorkIterator& works, Work& w) {
  return works.next(w, [&](std::int32_t b) { return device_shape(p, plan, b); });
}

// Addresses of the rows of one sub-tile, spread over the lanes.
struct RowAddress {
  std::int64_t k = 0;  // bytes from the head's first element
  std::int64_t v = 0;
  bool live = false;
};

template <class Traits>
class CacheLoader {
 public:
  using Layout = typename Traits::KvLayout;
  static constexpr int kKeys = Traits::kKeys;

  __device__ CacheLoader(const DecodeProblem& p, const Plan& plan, WorkIterator& works,
                         std::int32_t head, std::uint8_t* smem, Work* ring, std::uint32_t* bad)
      : p_(p), plan_(plan), works_(works), head_(head), smem_(smem), ring_(ring), bad_(bad) {
    k_ = static_cast<const std::uint8_t*>(p.k.data) + head * p.k.head_stride * size(p.k);
    v_ = static_cast<const std::uint8_t*>(p.v.data) + head * p.v.head_stride * size(p.v);
    live_ = begin_work();
    if (live_) read_pages();
  }

  // Copies the next step, if there is one, into a stage; always commits one group.
  __device__ __forceinline__ void issue(int stage) {
    if (live_) {
      copy(stage);
      key_ += plan_.tile_keys();
      if (key_ >= end_) live_ = begin_work();
      if (live_) read_pages();
    }
    cute::cp_async_fence();
  }

  // Works begun so far; work i lies in the ring at i % (stages + 1) until work i + stages begins.
  __device__ int begun() const { return begun_; }

 private:
  using Cache = typename Traits::Cache;

  // Bytes of an element.
  __device__ __forceinline__ static std::int64_t size(const CacheView& c) {
    if constexpr (!Traits::kConverting) return sizeof(Cache);
    return c.dtype == DType::kFloat16 || c.dtype == DType::kBFloat16 ? 2 : 1;
  }

  __device__ bool begin_work() {
    Work w;
    if (!next_work(p_, plan_, works_, w)) return false;
    if (threadIdx.x % 32 == 0) ring_[begun_ % (plan_.stages + 1)] = w;
    if constexpr (Traits::kConverting) __syncwarp();
    ++begun_;
    prefetch_q(p_, plan_, w, head_);
    key_ = w.begin >> plan_.tile_log2 << plan_.tile_log2;
    begin_ = w.begin;
    end_ = w.end;
    first_page_ = works_.first_page();
    return true;
  }

  __device__ __forceinline__ void read_pages() {
    const int token = key_ + (threadIdx.x / 32) * kKeys + threadIdx.x % kKeys;
    page_ = -1;
    token_ = -1;
    if (token < begin_ || token >= end_) return;
    const auto page_size = static_cast<unsigned>(p_.page_size);
    const unsigned index = static_cast<unsigned>(token) / page_size;
    token_ = static_cast<int>(static_cast<unsigned>(token) - index * page_size);
    const PageTable& t = p_.pages;
    const std::int64_t at = first_page_ + index * t.entries.stride;
    page_ = t.entries.wide ? static_cast<const std::int64_t*>(t.entries.data)[at]
                           : static_cast<const std::int32_t*>(t.entries.data)[at];
  }

  __device__ __forceinline__ RowAddress address(int stage) {
    const bool in_pool = page_ >= 0 && page_ < p_.pages.num_pages;
    const std::uint32_t bad = __ballot_sync(~0u, token_ >= 0 && !in_pool);
    const int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) bad_[warp * plan_.stages + stage] = bad;
    RowAddress a;
    a.live = token_ >= 0 && in_pool;
    if (a.live) {
      a.k = (page_ * p_.k.page_stride + token_ * p_.k.token_stride) * size(p_.k);
      a.v = (page_ * p_.v.page_stride + token_ * p_.v.token_stride) * size(p_.v);
    }
    return a;
  }

  __device__ __forceinline__ void copy(int stage) {
    const RowAddress a = address(stage);
    const int warp = threadIdx.x / 32;
    std::uint8_t* k_tile = smem_ + Traits::tile_offset(plan_, stage, warp);
    std::uint8_t* v_tile = k_tile + plan_.warps * Traits::kTileBytes;
    const std::uint32_t live = __ballot_sync(~0u, a.live);
    if constexpr (Traits::kConverting) {
      const SequenceView s = view_of(ring_[(begun_ - 1) % (plan_.stages + 1)]);
      const int key0 = key_ + warp * kKeys;
      convert_rows<Traits>(p_, p_.k.dtype, true, k_, a.k, live, s, key0, k_tile);
      convert_rows<Traits>(p_, p_.v.dtype, false, v_, a.v, live, s, key0, v_tile);
    } else if (live == ~0u && p_.head_dim == Traits::kHeadDim &&
               (p_.page_size & (kKeys - 1)) == 0) {
      copy_page(k_ + __shfl_sync(~0u, a.k, 0), p_.k.token_stride, k_tile);
      copy_page(v_ + __shfl_sync(~0u, a.v, 0), p_.v.token_stride, v_tile);
    } else if (Traits::kBytes && p_.head_dim % 16 != 0) {
      copy_rows<8>(k_, a.k, live, k_tile);
      copy_rows<8>(v_, a.v, live, v_tile);
    } else {
      copy_rows<16>(k_, a.k, live, k_tile);
      copy_rows<16>(v_, a.v, live, v_tile);
    }
  }

  // A whole tile in one page: the common case, 3 instructions a copy.
  __device__ __forceinline__ void copy_page(const std::uint8_t* from, std::int64_t token_stride,
                                            std::uint8_t* to) {
    using namespace cute;
    constexpr int kLanes = Traits::kRowBytes / 16;
    constexpr int kRows = 32 / kLanes;
    const int lane = threadIdx.x % 32;
    const std::int64_t stride = token_stride * std::int64_t(sizeof(Cache));
    auto tile = make_tensor(make_smem_ptr(reinterpret_cast<std::uint16_t*>(to)), Layout{});
    from += lane / kLanes * stride + lane % kLanes * 16;
#pragma unroll
    for (int r0 = 0; r0 < kKeys; r0 += kRows) {
      SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>::copy(
          *reinterpret_cast<const uint128_t*>(from),
          *reinterpret_cast<uint128_t*>(&tile(r0 + lane / kLanes, lane % kLanes * 8)));
      from += kRows * stride;
    }
  }

  // Any rows. A row of the cache is copied by neighbouring lanes, kBytes each.
  template <int kBytes>
  __device__ __forceinline__ void copy_rows(const std::uint8_t* head, std::int64_t offset,
                                            std::uint32_t live, std::uint8_t* to) {
    using namespace cute;
    constexpr int kLanes = Traits::kRowBytes / kBytes < 32 ? Traits::kRowBytes / kBytes : 32;
    constexpr int kRows = 32 / kLanes;  // at a time
    constexpr int kPieces = Traits::kRowBytes / (kLanes * kBytes);
    const int lane = threadIdx.x % 32;
    auto tile = make_tensor(make_smem_ptr(reinterpret_cast<std::uint16_t*>(to)), Layout{});
#pragma unroll 1
    for (int r0 = 0; r0 < kKeys; r0 += kRows) {
      const int row = r0 + lane / kLanes;
      const std::int64_t from = __shfl_sync(~0u, offset, row);
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        const int byte = (lane % kLanes + piece * kLanes) * kBytes;
        const bool in = (live >> row & 1) && byte < p_.head_dim * int(sizeof(Cache));
        auto* d = &tile(row, byte / 2);
        if constexpr (kBytes == 16) {
          SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<uint128_t>::copy(
              *reinterpret_cast<const uint128_t*>(head + from + (in ? byte : 0)),
              *reinterpret_cast<uint128_t*>(d), in);
        } else {
          SM80_CP_ASYNC_CACHEALWAYS_ZFILL<std::uint64_t>::copy(
              *reinterpret_cast<const std::uint64_t*>(head + from + (in ? byte : 0)),
              *reinterpret_cast<std::uint64_t*>(d), in);
        }
      }
    }
  }

  const DecodeProblem& p_;
  const Plan& plan_;
  WorkIterator& works_;
  std::int32_t head_;
  std::uint8_t* smem_;
  Work* ring_;
  std::uint32_t* bad_;
  const std::uint8_t* k_;
  const std::uint8_t* v_;
  bool live_ = false;
  int begun_ = 0;
  int key_ = 0;  // first key of the step that is issued next
  int begin_ = 0;
  int end_ = 0;
  std::int64_t first_page_ = 0;
  std::int64_t page_ = -1;  // of this lane's key
  int token_ = -1;          // its place in the page; -1: outside the range
};

}  // namespace pagedecode::cuda
