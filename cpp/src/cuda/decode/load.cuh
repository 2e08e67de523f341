// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The loading warp: walks the block's works and copies K and V of each stage with cp.async through
// the page table, as far ahead as the ring goes, over the ends of works. Lane i knows the addresses
// of keys i, i + 32, ... of a stage; page ids are read one stage before their use. Keys outside
// the work's range are zero-filled, so that what lies there cannot matter, and their pages are
// not followed.
#pragma once

#include "cuda/decode/load_converting.cuh"
#include "cuda/decode/pipeline.cuh"
#include "cuda/schedule/locate.cuh"

namespace pagedecode::cuda {

template <class Traits>
class Loader {
 public:
  __device__ explicit Loader(const BlockState<Traits>& block) : b_(block), p_(block.p) {}

  // All works of one head of the chunk.
  __device__ __forceinline__ void load_head(const ChunkStart& start, int chunk, int head_lane,
                                            int head) {
    WorkIterator works(p_, b_.plan, start, chunk, head_lane);
    const Head k(p_.k, head, element_size(p_.k));
    const Head v(p_.v, head, element_size(p_.v));
    Work w;
    while (works.next(w, [&](std::int32_t s) { return load_shape(p_, b_.plan, s); })) {
      w.head = head;
      prefetch_q(p_, b_.plan, w, head);
      load_work(w, works.first_page(), k, v);
    }
  }

  // Tells the consumers that there is no more.
  __device__ __forceinline__ void finish() {
    b_.empty_k(ring_.stage).wait(ring_.parity ^ 1);
    if (lane() == 0) {
      b_.headers()[ring_.stage].work = -1;
      b_.header(ring_.stage).arrive();
    }
  }

 private:
  using Cache = typename Traits::Cache;
  static constexpr int kKeys = Traits::kStageKeys;
  static constexpr int kShare = kKeys / 32;  // keys of a lane

  // A head of K or of V.
  struct Head {
    const std::uint8_t* data;
    std::int64_t page_stride;  // bytes
    std::int64_t token_stride;

    __device__ Head(const CacheView& c, int head, std::int64_t size)
        : data(static_cast<const std::uint8_t*>(c.data) + head * c.head_stride * size),
          page_stride(c.page_stride * size),
          token_stride(c.token_stride * size) {}
    __device__ __forceinline__ std::int64_t offset(std::int32_t page, std::int32_t token) const {
      return page * page_stride + token * token_stride;
    }
  };

  // Pages of a lane's keys of a stage.
  struct Pages {
    std::int32_t id[kShare];     // -1: not to be read
    std::int32_t token[kShare];  // place in the page
    std::uint32_t bad;           // bit j: key lane + 32 j has an id outside the pool
  };

  __device__ __forceinline__ static int lane() { return threadIdx.x % 32; }

  // Bytes of an element.
  __device__ __forceinline__ static std::int64_t element_size(const CacheView& c) {
    if constexpr (!Traits::kConverting) return sizeof(Cache);
    return c.dtype == DType::kFloat16 || c.dtype == DType::kBFloat16 ? 2 : 1;
  }

  __device__ __forceinline__ void read_pages(const Work& w, std::int64_t first_page, int key0,
                                             Pages& pages) {
    const auto page_size = static_cast<unsigned>(p_.page_size);
    pages.bad = 0;
#pragma unroll
    for (int j = 0; j < kShare; ++j) {
      const int key = key0 + lane() + 32 * j;
      pages.id[j] = -1;
      pages.token[j] = 0;
      if (key < w.begin || key >= w.end) continue;
      const unsigned index = static_cast<unsigned>(key) / page_size;
      pages.token[j] = static_cast<int>(static_cast<unsigned>(key) - index * page_size);
      const std::int64_t id = page_id(p_.pages, first_page, index);
      if (id >= 0 && id < p_.pages.num_pages) {
        pages.id[j] = static_cast<std::int32_t>(id);
      } else {
        pages.bad |= 1u << j;
      }
    }
  }

  __device__ __forceinline__ void load_work(const Work& w, std::int64_t first_page, const Head& k,
                                            const Head& v) {
    const int tile_log2 = b_.plan.tile_log2;
    int key = w.begin >> tile_log2 << tile_log2;
    Pages pages;
    read_pages(w, first_page, key, pages);
    bool first = true;
    bool last;
    // A work without keys takes a stage, too.
#pragma unroll 1
    do {
      last = key + kKeys >= w.end;
      const Pages now = pages;
      const int stage = ring_.stage;
      b_.empty_k(stage).wait(ring_.parity ^ 1);
      test_delay();
      write_header(w, key, first, last, now);
      bool whole = p_.page_size % 16 == 0 && p_.head_dim == Traits::kHeadDim;
#pragma unroll
      for (int j = 0; j < kShare; ++j) whole = whole && now.id[j] >= 0;
      whole = __all_sync(~0u, whole);
      if (!last) read_pages(w, first_page, key + kKeys, pages);

      copy(w, key, k, true, now, whole, b_.k_stage(stage));
      arrive(b_.full_k(stage));
      b_.empty_v(stage).wait(ring_.parity ^ 1);
      copy(w, key, v, false, now, whole, b_.v_stage(stage));
      arrive(b_.full_v(stage));
      ring_.advance(b_.plan.stages);
      key += kKeys;
      first = false;
    } while (!last);
    if (++work_ == b_.plan.stages + 1) work_ = 0;
  }

  // Every lane, after its part of K or of V.
  __device__ __forceinline__ static void arrive(Barrier& full) {
    if constexpr (Traits::kConverting) {
      full.arrive();  // ordinary stores
    } else {
      full.arrive_after_copies();
    }
  }

  __device__ __forceinline__ void write_header(const Work& w, int key, bool first, bool last,
                                               const Pages& pages) {
    StageHeader& h = b_.headers()[ring_.stage];
#pragma unroll
    for (int j = 0; j < kShare; ++j) {
      const std::uint32_t bad = __ballot_sync(~0u, pages.bad >> j & 1);
      if (lane() == 0) h.bad[j] = bad;
    }
    if (lane() == 0) {
      h.work = work_;
      h.key = key;
      h.last = last;
      // Its slot's last work ended `stages` stages ago or more, and the consumers are past it.
      if (first) b_.works()[work_] = w;
      b_.header(ring_.stage).arrive();
    }
  }

  __device__ __forceinline__ void copy(const Work& w, int key, const Head& head, bool is_k,
                                       const Pages& pages, bool whole, std::uint8_t* to) {
    std::int64_t offset[kShare];
#pragma unroll
    for (int j = 0; j < kShare; ++j) offset[j] = head.offset(pages.id[j], pages.token[j]);
    if constexpr (Traits::kConverting) {
#pragma unroll
      for (int j = 0; j < kShare; ++j) {
        const std::uint32_t live = __ballot_sync(~0u, pages.id[j] >= 0);
        convert_rows<Traits>(p_, is_k ? p_.k.dtype : p_.v.dtype, is_k, head.data, offset[j], live,
                             view_of(w), key + 32 * j, 32 * j, to);
      }
    } else if (whole) {
      copy_pages(head, offset, to);
    } else if (Traits::kBytes && p_.head_dim % 16 != 0) {
      copy_rows<8>(head.data, offset, pages, to);
    } else {
      copy_rows<16>(head.data, offset, pages, to);
    }
  }

  // Every 16 keys lie in one page, and all are wanted: the common case, 3 instructions a copy.
  __device__ __forceinline__ void copy_pages(const Head& head, const std::int64_t (&offset)[kShare],
                                             std::uint8_t* to) {
    using namespace cute;
    constexpr int kLanes = Traits::kRowBytes / 16;  // of a row
    constexpr int kRows = 32 / kLanes;              // at a time
    auto tile = make_tensor(make_smem_ptr(reinterpret_cast<std::uint16_t*>(to)),
                            typename Traits::StageLayout{});
    const std::uint8_t* mine =
        head.data + lane() / kLanes * head.token_stride + lane() % kLanes * 16;
    const std::int64_t stride = kRows * head.token_stride;
#pragma unroll
    for (int group = 0; group < kKeys / 16; ++group) {
      const std::uint8_t* from = mine + __shfl_sync(~0u, offset[group / 2], group % 2 * 16);
#pragma unroll
      for (int row = 0; row < 16; row += kRows) {
        auto* d = &tile(group * 16 + row + lane() / kLanes, lane() % kLanes * 8);
        SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>::copy(*reinterpret_cast<const uint128_t*>(from),
                                                   *reinterpret_cast<uint128_t*>(d));
        from += stride;
      }
    }
  }

  // Any rows. A row of the cache is copied by neighbouring lanes, kBytes each.
  template <int kBytes>
  __device__ __forceinline__ void copy_rows(const std::uint8_t* head,
                                            const std::int64_t (&offset)[kShare],
                                            const Pages& pages, std::uint8_t* to) {
    using namespace cute;
    constexpr int kLanes = Traits::kRowBytes / kBytes < 32 ? Traits::kRowBytes / kBytes : 32;
    constexpr int kRows = 32 / kLanes;
    constexpr int kPieces = Traits::kRowBytes / (kLanes * kBytes);
    const int width = p_.head_dim * int(sizeof(Cache));
    auto tile = make_tensor(make_smem_ptr(reinterpret_cast<std::uint16_t*>(to)),
                            typename Traits::StageLayout{});
#pragma unroll
    for (int j = 0; j < kShare; ++j) {
      const std::uint32_t live = __ballot_sync(~0u, pages.id[j] >= 0);
#pragma unroll 1
      for (int r0 = 0; r0 < 32; r0 += kRows) {
        const int row = r0 + lane() / kLanes;
        const std::uint8_t* from = head + __shfl_sync(~0u, offset[j], row);
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece) {
          const int byte = (lane() % kLanes + piece * kLanes) * kBytes;
          const bool in = (live >> row & 1) && byte < width;
          auto* d = &tile(32 * j + row, byte / 2);
          if constexpr (kBytes == 16) {
            SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<uint128_t>::copy(
                *reinterpret_cast<const uint128_t*>(in ? from + byte : head),
                *reinterpret_cast<uint128_t*>(d), in);
          } else {
            SM80_CP_ASYNC_CACHEALWAYS_ZFILL<std::uint64_t>::copy(
                *reinterpret_cast<const std::uint64_t*>(in ? from + byte : head),
                *reinterpret_cast<std::uint64_t*>(d), in);
          }
        }
      }
    }
  }

  const BlockState<Traits>& b_;
  const DecodeProblem& p_;
  RingPosition ring_;
  int work_ = 0;  // place of the next work in the ring of Work
};

}  // namespace pagedecode::cuda
