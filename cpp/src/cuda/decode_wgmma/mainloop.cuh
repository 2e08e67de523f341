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
  float s[kRows / 2];  // S^T (T, N)
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
    RingPosition k_ring = ring;
    std::uint32_t p_buffer = 0;  // 0, or the second's offset
    bool fresh = true;           // no row has a reference yet
    std::uint32_t bad = start_scores(k_ring);
    finish_scores(k_ring);
#pragma unroll 1
    while (true) {
      const bool partly = key0 > open_until || key0 < edge || bad != 0;
      if (partly) {
        const auto bad_key = [&](int c) { return (bad >> (1 + c) & 1) != 0; };
        mask_tile<Softmax>(p, plan, w, key0, bad_key, shared.scale, s);
      }
      const std::uint32_t p_address = shared_address(shared.p[0]) + p_buffer;
      softmax.step(s, fresh, p_address + lane_p, shared.by_warp, [&](int i, float factor) {
#pragma unroll
        for (int z = 0; z < 2; ++z) {
#pragma unroll
          for (int h = 0; h < kOwnBlocks; ++h) o[h][i / 2 * 4 + 2 * z + i % 2] *= factor;
        }
      });
      fresh = false;
      const int v_stage = ring.stage;
      wait_full(shared.full_v[v_stage], ring.parity);
      if (partly) {
        clean_values<Traits>(w, key0, shared.kv[v_stage][1], shared.p[0] + p_buffer, *this);
      }
      start_outputs(v_stage, p_address);
      key0 += Traits::kTileKeys;
      if (key0 >= end) break;
      if constexpr (!Traits::kOverlap) finish_outputs(ring);
      bad = start_scores(k_ring);
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

  // Begins s = K Q^T of a stage, once it is there; returns its bad keys.
  __device__ __forceinline__ std::uint32_t start_scores(const RingPosition& ring) {
    // The same in all lanes, so that descriptors are uniform.
    const int stage = __shfl_sync(~0u, ring.stage, 0);
    wait_full(shared.full_k[stage], ring.parity);
    const std::uint32_t bad = own_bad_keys(shared.bad[stage]);
    const std::uint32_t k = shared_address(shared.kv[0][0]) + stage * (2 * Traits::kTileBytes);
    const wgmma::Place q(__shfl_sync(~0u, shared_address(shared.q), 0), 16);
    const auto q_block = [&](int block) {
      return q.descriptor<1024, wgmma::k128Bytes>(block / 4 * (kRows * 128) + block % 4 * 32);
    };
    constexpr auto kK = wgmma::Major::K;
    if constexpr (!Traits::kBytes) {
      using Op = wgmma::SharedOp<Element, kRows, kK, kK>;
      const wgmma::Place a(k + own_k, 16);
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
        std::uint32_t units[2 * kPartBlocks], halves[4 * kPartBlocks];
#pragma unroll
        for (int c = 0; c < kPartBlocks / 2; ++c) {
          ldmatrix(k + part * Traits::kPartTile + (lane_k ^ (c * 32)), units + 4 * c);
        }
        if (kPartsApart || part == 0) wgmma::fence(s);
          // In two halves: the second is converted beside the products of the first.
#pragma unroll
        for (int half = 0; half < Traits::kHalves; ++half) {
          constexpr int kBlocksOfHalf = kPartBlocks / Traits::kHalves;
          half2_from_bytes_at<2 * kBlocksOfHalf>(Traits::type_of(p.k),
                                                 units + half * 2 * kBlocksOfHalf,
                                                 halves + half * 4 * kBlocksOfHalf);
          cute::warpgroup_arrive();
#pragma unroll
          for (int b = 0; b < kBlocksOfHalf; ++b) {
            const int block = half * kBlocksOfHalf + b;
            // Register x of units 2 block, 2 block + 1: rows g, g + 8; its halves are k 0-7 and
            // 8-15.
            const std::uint32_t* x = halves + 4 * block;
            const std::uint32_t a[4] = {x[0], x[2], x[1], x[3]};
            wgmma::fma<Op>(a, q_block(part * kPartBlocks + block), s, part + block > 0);
          }
        }
      }
    }
    cute::warpgroup_commit_batch();
    return bad;
  }

  // Waits for the scores, and for what was begun before them; gives K's stage back.
  __device__ __forceinline__ void finish_scores(RingPosition& ring) {
    cute::warpgroup_wait<0>();
    wgmma::fence(s);
    leave_k(ring);
  }

  // Begins o += V^T P^T of a stage.
  __device__ __forceinline__ void start_outputs(int ring_stage, std::uint32_t p_address) {
    const int stage = __shfl_sync(~0u, ring_stage, 0);
    const std::uint32_t kv = shared_address(shared.kv[0][0]) + stage * (2 * Traits::kTileBytes);
    constexpr auto kMn = wgmma::Major::MN;
    const wgmma::Place p_tile(__shfl_sync(~0u, p_address, 0) + first_key * 16, 128);
    const auto p_block = [&](int block) {
      return p_tile.descriptor<Traits::kPRowBlock, wgmma::kNone>(block * 256);
    };
    if constexpr (!Traits::kBytes) {
      using Op = wgmma::SharedOp<Element, kRows, kMn, kMn>;
      const wgmma::Place a(
          kv + Traits::kTileBytes + first_block * Traits::kPartTile + first_key * 128, 16);
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
      constexpr int kPartBlocks = Traits::kPartBytes / 64;  // of O^T, in a part
      constexpr int kSteps = Traits::kOwnKeys / 32;         // of 32 tokens
      // Blocks converted together.
      constexpr int kTogether = kOwnBlocks < kPartBlocks ? kOwnBlocks : kPartBlocks;
#pragma unroll
      for (int h0 = 0; h0 < kOwnBlocks; h0 += kTogether) {
        if (kPartsApart && h0 > 0) finish_part();
        std::uint32_t units[4 * kSteps * kTogether], halves[8 * kSteps * kTogether];
#pragma unroll
        for (int i = 0; i < kSteps * kTogether; ++i) {
          // Tokens first_key + 32 (i % kSteps) on, chunk 4 block + warp.
          const int block = first_block + h0 + i / kSteps;
          ldmatrix_transposed(kv + block / kPartBlocks * Traits::kPartTile +
                                  (first_key + i % kSteps * 32) * Traits::kPartBytes +
                                  (lane_v ^ (block % kPartBlocks * 64)),
                              units + i * 4);
        }
        if (kPartsApart || h0 == 0) fence_outputs();
#pragma unroll
        for (int half = 0; half < Traits::kHalves; ++half) {
          constexpr int kUnits = 4 * kSteps * kTogether / Traits::kHalves;
#pragma unroll
          for (int i = half * kUnits; i < (half + 1) * kUnits; ++i) {
            units[i] = __byte_perm(units[i], 0, 0x3120);
          }
          half2_from_bytes_at<kUnits>(Traits::type_of(p.v), units + half * kUnits,
                                      halves + half * 2 * kUnits);
          cute::warpgroup_arrive();
#pragma unroll
          for (int i = half * kUnits / 2; i < (half + 1) * kUnits / 2; ++i) {
            const std::uint32_t* x = halves + 4 * i;
            const std::uint32_t a[4] = {x[0], x[1], x[2], x[3]};
            wgmma::fma<Op>(a, p_block(i % (2 * kSteps)), o[h0 + i / (2 * kSteps)], true);
          }
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
