// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The consuming warps: S^T = K Q^T, softmax, O^T += V^T P^T, tile by tile. Keys are wgmma's M,
// query rows its N, so that few rows waste nothing. The next tile's S^T is computed beside this
// tile's O^T.
//
// 1-byte caches, with a 16-bit Q: K and V pass through registers as A. ldmatrix moves pairs of
// bytes as 16-bit units. For K, unit (2 t, 2 t + 1) of a thread is elements 4 t .. 4 t + 3: the
// halves of the register serve as one k block if Q's columns are permuted alike (load_q.cuh). For V
// (transposed), a register is two tokens by two elements: one byte permute makes two registers, of
// elements 2 g and 2 g + 1, so rows g and g + 8 of O^T's blocks of 16 are those elements.
#pragma once

#include "cuda/decode/convert.cuh"
#include "cuda/decode_wgmma/load_q.cuh"
#include "cuda/decode_wgmma/mask.cuh"
#include "cuda/decode_wgmma/mma.cuh"
#include "cuda/decode_wgmma/softmax.cuh"

namespace pagedecode::cuda {

__device__ __forceinline__ void ldmatrix(std::uint32_t address, std::uint32_t* r) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_transposed(std::uint32_t address, std::uint32_t* r) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

template <class Traits>
struct WgmmaMainloop {
  using Element = typename Traits::Element;
  using Softmax = WgmmaSoftmax<Traits>;
  static constexpr int kRows = Traits::kRows;
  static constexpr int kBlocks = Traits::kBlocks;
  static constexpr int kOwnBlocks = Traits::kOwnBlocks;
  // Converted keys of D 256 take 64 registers, too many beside 32 rows: part by part.
  static constexpr bool kPartsApart = Traits::kBytes && Traits::kHeadDim > 128 && kRows > 16;
  // 1-byte keys of the next tile come to registers beside the products of O^T, values beside those
  // of S^T. Not where two warpgroups share a tile and wait for each other.
  static constexpr bool kAhead = Traits::kBytes && Traits::kHeadDim <= 128 && !Traits::kOverlap;
  static constexpr int kKeyUnits = Traits::kBytes ? Traits::kPartBytes / 8 : 1;  // of a part
  static constexpr int kPartOutputs = Traits::kPartBytes / 64;  // blocks of O^T, in a part of V
  static constexpr int kTogether = kOwnBlocks < kPartOutputs ? kOwnBlocks : kPartOutputs;
  static constexpr int kSteps = Traits::kOwnKeys / 32;  // of 32 tokens
  static constexpr int kValueUnits = Traits::kBytes ? 4 * kSteps * kTogether : 1;

  const DecodeProblem& p;
  const Plan& plan;
  WgmmaStorage<Traits>& shared;
  std::uint32_t lane_k;  // 1-byte caches: this lane's first ldmatrix row of K, and of V, in a stage
  std::uint32_t lane_v;
  std::uint32_t lane_p;  // where this thread's first pair of P goes, in a buffer
  int first_block;  // of the head dim's, and of the tile's keys, that this warpgroup has of O^T
  int first_key;
  std::uint32_t own_k;  // where its keys of S^T begin, in a part of K
  // O^T (D, N): element 64 (first_block + h) + element_of(e) of row_of(i): [h][4 j + e]
  float o[kOwnBlocks][kRows / 2];
  float s[kRows / 2];                  // S^T (T, N)
  std::uint32_t key_bytes[kKeyUnits];  // as ldmatrix brings them
  std::uint32_t value_bytes[kValueUnits];
  std::uint32_t keys[2 * kKeyUnits];  // converted
  std::uint32_t values[2 * kValueUnits];
  Softmax softmax;

  __device__ WgmmaMainloop(const DecodeProblem& problem, const Plan& the_plan,
                           WgmmaStorage<Traits>& storage)
      : p(problem), plan(the_plan), shared(storage) {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    lane_k = Traits::place(warp * 16 + lane % 16, lane / 16);
    const int group = Traits::kGroups == 1 ? 0 : __shfl_sync(~0u, threadIdx.x / 128, 0);
    own_k = group * (64 * Traits::kPartBytes);
    first_block = group % Traits::kDimGroups * kOwnBlocks;
    first_key = group / Traits::kDimGroups * Traits::kOwnKeys;
    lane_v = Traits::kTileBytes + Traits::place(lane, warp % 4);
    lane_p = (warp * 16 + lane / 4) * 16 + lane % 4 * 4;
  }

  // Element of the head dim of accumulator e of {0 .. 3}, from that of its half.
  __device__ __forceinline__ static int element_of(int e) {
    const int g = lane_index() / 4;
    return thread_index() / 32 % 4 * 16 + (Traits::kBytes ? 2 * g + e / 2 : g + e / 2 * 8);
  }

  // All tiles of a work, from `ring` on.
  __device__ __forceinline__ void run(const Work& w, int edge, RingPosition& ring) {
    softmax.begin(shared.scale, logit_options(p));
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) {
#pragma unroll
      for (int h = 0; h < kOwnBlocks; ++h) o[h][i] = 0.0f;
    }
    const int end = w.end;
    int key0 = w.begin >> Traits::kTileLog2 << Traits::kTileLog2;
    if (w.begin >= end) return;
    // Tiles from `edge` up to here hide nothing from any row.
    const int open_until = logit_options(p) ? INT32_MIN : w.n - w.m - Traits::kTileKeys;
    const std::uint32_t q = uniform_early(shared_address(shared.q));
    RingPosition k_ring = ring;
    std::uint32_t p_buffer = 0;  // 0, or the second's offset
    bool fresh = true;           // no row has a reference yet
    prepare_keys(k_ring);
    start_scores(q, k_ring);
    BadKeys bad;
    load_bad(k_ring, bad);
    prepare_values(ring);
    finish_scores(k_ring);
#pragma unroll 1
    while (true) {
      const std::uint32_t p_address = shared_address(shared.p[0]) + p_buffer;
      const std::uint32_t p_tile = uniform_early(p_address);
      const bool partly = key0 > open_until || key0 < edge || any_of(bad);
      softmax.step(
          s, partly || fresh, fresh, p_address + lane_p, shared.by_warp,
          [&] {
            if (!partly) return;
            const std::uint32_t own = own_bad_keys(bad);
            const auto bad_key = [&](int c) { return (own >> c & 1) != 0; };
            mask_tile<Softmax>(p, plan, w, key0, bad_key, shared.scale, s);
          },
          [&](int i, float factor) {
#pragma unroll
            for (int z = 0; z < 2; ++z) {
#pragma unroll
              for (int h = 0; h < kOwnBlocks; ++h) o[h][i / 2 * 4 + 2 * z + i % 2] *= factor;
            }
          });
      fresh = false;
      const int v_stage = ring.stage;
      if constexpr (!kAhead) wait_full(shared.full_v[v_stage], ring.parity);
      if (partly) {
        clean_values<Traits>(w, key0, shared.kv[v_stage][1], shared.p[0] + p_buffer, *this);
        if constexpr (kAhead) load_values(v_stage, 0);
      }
      start_outputs(ring, p_tile);
      key0 += Traits::kTileKeys;
      if (key0 >= end) break;
      prepare_keys(k_ring);
      if constexpr (!Traits::kOverlap) finish_outputs(ring);
      start_scores(q, k_ring);
      load_bad(k_ring, bad);
      prepare_values(ring);
      finish_scores(k_ring);
      if constexpr (Traits::kOverlap) finish_outputs(ring);
      p_buffer ^= Traits::kPBytes;
    }
    finish_outputs(ring);
  }

 private:
  __device__ __forceinline__ static void wait_full(Barrier& full, std::uint32_t parity) {
    full.wait(parity);
    test_delay();
    // What cp.async wrote is made visible to wgmma by each thread that waited for it.
    if constexpr (!Traits::kTma && !Traits::kBytes) fence_async();
  }

  __device__ __forceinline__ void leave_k(RingPosition& ring) {
    arrive_as_warp(shared.empty_k[ring.stage]);
    ring.advance(Traits::kStages);
  }
  __device__ __forceinline__ void leave_v(RingPosition& ring) {
    arrive_as_warp(shared.empty_v[ring.stage]);
    ring.advance(Traits::kStages);
  }

  __device__ __forceinline__ void fence_outputs() {
#pragma unroll
    for (int h = 0; h < kOwnBlocks; ++h) wgmma::fence(o[h]);
  }

  // Ends the products of a part, whose registers the next needs.
  __device__ __forceinline__ void finish_part() {
    cute::warpgroup_commit_batch();
    cute::warpgroup_wait<0>();
    wgmma::fence(s);
    fence_outputs();
  }

  // Of a stage: a bit for each key in a page out of the pool.
  using BadKeys = std::uint64_t[Traits::kKeyWords];
  __device__ __forceinline__ void load_bad(const RingPosition& ring, BadKeys& bad) const {
#pragma unroll
    for (int i = 0; i < Traits::kKeyWords; ++i) bad[i] = shared.bad[ring.stage][i];
  }
  __device__ __forceinline__ static bool any_of(const BadKeys& bad) {
    std::uint64_t any = 0;
#pragma unroll
    for (int i = 0; i < Traits::kKeyWords; ++i) any |= bad[i];
    return any != 0;
  }

  __device__ __forceinline__ static std::uint32_t uniform(std::uint32_t x) {
    return __shfl_sync(~0u, x, 0);
  }
  // Descriptors have to be in uniform registers, and the same in all lanes for that. Where there is
  // one of them a product, it stays there from early on; of two, beside the products.
  __device__ __forceinline__ static std::uint32_t uniform_early(std::uint32_t x) {
    return Traits::kBytes ? uniform(x) : x;
  }
  __device__ __forceinline__ static std::uint32_t uniform_late(std::uint32_t x) {
    return Traits::kBytes ? x : uniform(x);
  }
  __device__ __forceinline__ std::uint32_t stage_address(int stage) const {
    return shared_address(shared.kv[0][0]) + stage * (2 * Traits::kTileBytes);
  }

  // Waits for K of a stage; 1-byte keys then come to registers.
  __device__ __forceinline__ void prepare_keys(const RingPosition& ring) {
    wait_full(shared.full_k[ring.stage], ring.parity);
    if constexpr (kAhead) load_keys(ring.stage, 0);
  }
  // The same of V, where it does not come later.
  __device__ __forceinline__ void prepare_values(const RingPosition& ring) {
    if constexpr (kAhead) {
      wait_full(shared.full_v[ring.stage], ring.parity);
      load_values(ring.stage, 0);
    }
  }

  __device__ __forceinline__ void load_keys(int stage, int part) {
    const std::uint32_t k = stage_address(stage) + part * Traits::kPartTile;
#pragma unroll
    for (int c = 0; c < kKeyUnits / 4; ++c) ldmatrix(k + (lane_k ^ (c * 32)), key_bytes + 4 * c);
  }
  template <int kFrom, int kEnd>
  __device__ __forceinline__ void convert_keys() {
    half2_from_bytes_at<kEnd - kFrom>(Traits::type_of(p.k), key_bytes + kFrom, keys + 2 * kFrom);
  }

  // Values of kTogether blocks of O^T.
  __device__ __forceinline__ void load_values(int stage, int h0) {
    const std::uint32_t kv = stage_address(stage);
#pragma unroll
    for (int i = 0; i < kSteps * kTogether; ++i) {
      // Tokens first_key + 32 (i % kSteps) on, chunk 4 block + warp.
      const int block = first_block + h0 + i / kSteps;
      ldmatrix_transposed(kv + block / kPartOutputs * Traits::kPartTile +
                              (first_key + i % kSteps * 32) * Traits::kPartBytes +
                              (lane_v ^ (block % kPartOutputs * 64)),
                          value_bytes + i * 4);
    }
  }
  template <int kFrom, int kEnd>
  __device__ __forceinline__ void convert_values() {
#pragma unroll
    for (int i = kFrom; i < kEnd; ++i) value_bytes[i] = __byte_perm(value_bytes[i], 0, 0x3120);
    half2_from_bytes_at<kEnd - kFrom>(Traits::type_of(p.v), value_bytes + kFrom,
                                      values + 2 * kFrom);
  }

  // Begins s = K Q^T of a stage that is there.
  __device__ __forceinline__ void start_scores(std::uint32_t q_address, const RingPosition& ring) {
    const auto stage = static_cast<int>(uniform_late(ring.stage));
    const wgmma::Place q(uniform_late(q_address), 16);
    const auto q_block = [&](int block) {
      return q.descriptor<1024, wgmma::k128Bytes>(block / 4 * (kRows * 128) + block % 4 * 32);
    };
    constexpr auto kK = wgmma::Major::K;
    if constexpr (!Traits::kBytes) {
      using Op = wgmma::SharedOp<Element, kRows, kK, kK>;
      const wgmma::Place a(stage_address(stage) + own_k, 16);
      wgmma::fence(s);
      cute::warpgroup_arrive();
#pragma unroll
      for (int block = 0; block < 4 * kBlocks; ++block) {
        wgmma::fma<Op>(
            a.descriptor<1024, wgmma::k128Bytes>(block / 4 * Traits::kPartTile + block % 4 * 32),
            q_block(block), s, block > 0);
      }
    } else {
      using Op = wgmma::RegisterOp<Element, kRows, kK>;
      constexpr int kPartBlocks = Traits::kPartBytes / 16;  // of k, in a part
#pragma unroll
      for (int part = 0; part < Traits::kParts; ++part) {
        if (kPartsApart && part > 0) finish_part();
        if constexpr (!kAhead) load_keys(stage, part);
        if (kPartsApart || part == 0) wgmma::fence(s);
        const auto products = [&](int from, int to) {
          cute::warpgroup_arrive();
#pragma unroll
          for (int b = from; b < to; ++b) {
            // Register x of units 2 b, 2 b + 1: rows g, g + 8; its halves are k 0-7 and 8-15.
            const std::uint32_t* x = keys + 4 * b;
            const std::uint32_t a[4] = {x[0], x[2], x[1], x[3]};
            wgmma::fma<Op>(a, q_block(part * kPartBlocks + b), s, part + b > 0);
          }
        };
        if constexpr (Traits::kHalves == 1) {
          convert_keys<0, kKeyUnits>();
          products(0, kPartBlocks);
        } else {
          // The second half is converted beside the products of the first.
          convert_keys<0, kKeyUnits / 2>();
          products(0, kPartBlocks / 2);
          convert_keys<kKeyUnits / 2, kKeyUnits>();
          products(kPartBlocks / 2, kPartBlocks);
        }
      }
    }
    cute::warpgroup_commit_batch();
  }

  // Waits for the scores, and for what was begun before them; gives K's stage back.
  __device__ __forceinline__ void finish_scores(RingPosition& ring) {
    cute::warpgroup_wait<0>();
    wgmma::fence(s);
    leave_k(ring);
  }

  // Begins o += V^T P^T of a stage.
  __device__ __forceinline__ void start_outputs(const RingPosition& ring, std::uint32_t p_address) {
    const auto stage = static_cast<int>(uniform_late(ring.stage));
    constexpr auto kMn = wgmma::Major::MN;
    const wgmma::Place p_tile(uniform_late(p_address) + first_key * 16, 128);
    const auto p_block = [&](int block) {
      return p_tile.descriptor<Traits::kPRowBlock, wgmma::kNone>(block * 256);
    };
    if constexpr (!Traits::kBytes) {
      using Op = wgmma::SharedOp<Element, kRows, kMn, kMn>;
      const wgmma::Place a(stage_address(stage) + Traits::kTileBytes +
                               first_block * Traits::kPartTile + first_key * 128,
                           16);
      fence_outputs();
      cute::warpgroup_arrive();
#pragma unroll
      for (int h = 0; h < kOwnBlocks; ++h) {
#pragma unroll
        for (int block = 0; block < Traits::kOwnKeys / 16; ++block) {
          wgmma::fma<Op>(a.descriptor<1024, wgmma::k128Bytes>(h * Traits::kPartTile + block * 2048),
                         p_block(block), o[h], true);
        }
      }
    } else {
      using Op = wgmma::RegisterOp<Element, kRows, kMn>;
#pragma unroll
      for (int h0 = 0; h0 < kOwnBlocks; h0 += kTogether) {
        if (kPartsApart && h0 > 0) finish_part();
        if constexpr (!kAhead) load_values(stage, h0);
        if (kPartsApart || h0 == 0) fence_outputs();
        const auto products = [&](int from, int to) {
          cute::warpgroup_arrive();
#pragma unroll
          for (int i = from; i < to; ++i) {
            const std::uint32_t* x = values + 4 * i;
            const std::uint32_t a[4] = {x[0], x[1], x[2], x[3]};
            wgmma::fma<Op>(a, p_block(i % (2 * kSteps)), o[h0 + i / (2 * kSteps)], true);
          }
        };
        constexpr int kProducts = kValueUnits / 2;
        if constexpr (Traits::kHalves == 1) {
          convert_values<0, kValueUnits>();
          products(0, kProducts);
        } else {
          convert_values<0, kValueUnits / 2>();
          products(0, kProducts / 2);
          convert_values<kValueUnits / 2, kValueUnits>();
          products(kProducts / 2, kProducts);
        }
      }
    }
    cute::warpgroup_commit_batch();
  }

  // Waits for the outputs; gives V's stage back.
  __device__ __forceinline__ void finish_outputs(RingPosition& ring) {
    cute::warpgroup_wait<0>();
    fence_outputs();
    leave_v(ring);
  }
};

}  // namespace pagedecode::cuda
