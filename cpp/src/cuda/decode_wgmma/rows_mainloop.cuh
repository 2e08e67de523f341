// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The consuming warpgroups where there are rows enough: S = Q K^T, softmax, O += P V, tile by tile.
// Query rows are wgmma's M, 64 to a warpgroup, keys its N and then its k: P is an operand in
// registers, and no warp waits for another but in tiles that some row sees in part. The outputs of
// a tile are computed beside the softmax of the next.
#pragma once

#include "cuda/decode_wgmma/load_q.cuh"
#include "cuda/decode_wgmma/mma.cuh"
#include "cuda/decode_wgmma/rows_mask.cuh"
#include "cuda/decode_wgmma/rows_softmax.cuh"

namespace pagedecode::cuda {

template <class Traits>
struct RowsMainloop {
  using Element = typename Traits::Element;
  using Softmax = RowsSoftmax<Traits>;
  static constexpr int kHeadDim = Traits::kHeadDim;
  static constexpr int kKeys = Traits::kTileKeys;
  static_assert(Traits::kTma && Traits::kRows * Traits::kTeams == 64 * Traits::kGroups);
  // Registers to ask a softmax ahead whether tiles have landed, since an answer takes 50 clocks,
  // and to mask where the softmax does what is rare. Accumulators of D 256 leave none: 145 us
  // become 177.
  static constexpr bool kRoom = kHeadDim <= 128;

  const DecodeProblem& p;
  const Plan& plan;
  WgmmaStorage<Traits>& shared;
  float o[kHeadDim / 2];  // O (64, D): row r, column 8 j + 2 (lane % 4) + e: [4 j + 2 r + e]
  float s[kKeys / 2];     // S (64, T)
  std::uint32_t
      weights[kKeys / 4];  // P (64, T): row r, keys 8 j + 2 (lane % 4) + {0, 1}: [2 j + r]
  Softmax softmax;

  __device__ RowsMainloop(const DecodeProblem& problem, const Plan& the_plan,
                          WgmmaStorage<Traits>& storage)
      : p(problem), plan(the_plan), shared(storage) {}

  // All tiles of a work, from `ring` on: those of this thread's team.
  __device__ __forceinline__ void run(const Work& w, int edge, RingPosition& ring) {
    softmax.begin(shared.scale, logit_options(p));
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; ++i) o[i] = 0.0f;
#pragma unroll
    for (int i = 0; i < kKeys / 4; ++i) weights[i] = 0;
    const int end = w.end;
    int key0 = w.begin / kKeys * kKeys;
    if (w.begin >= end) return;
    RingPosition at = ring;
    if constexpr (Traits::kTeams > 1) {
      const int team = thread_index() / Traits::kTeam;
      key0 += team * kKeys;
      if (team > 0) at.advance(Traits::kStages);
      const int after = ring.stage + tiles_of<Traits>(w);
      ring.stage = after % Traits::kStages;
      ring.parity ^= after / Traits::kStages % 2;
      if (key0 >= end) return;
    }
    // Tiles from `edge` up to here hide nothing from any row.
    const int open_until = logit_options(p) ? INT32_MIN : w.n - w.m - kKeys;
    const std::uint32_t q =
        uniform_address(shared.q + thread_index() / 128 % (Traits::kRows / 64) * (64 * 128));
    bool fresh = true;  // no row has a reference yet
    bool keys_there = false;
    bool values_there = true;
    // In the first turn, O is a product of zeros with whatever lies there, which is forgotten:
    // products within a branch are serialised.
#pragma unroll 1
    while (true) {
      const RingPosition before = previous(at);
      if constexpr (!kRoom) {
        values_there = fresh | shared.full_v[before.stage].test(before.parity);
      }
      // In uniform registers, as descriptors are. A shuffle after the first product waits for it.
      const std::uint32_t k = uniform_address(shared.kv[at.stage][0]);
      const std::uint32_t v = uniform_address(shared.kv[before.stage][1]);
      if (!keys_there) wait_full(shared.full_k[at.stage], at.parity);
      start_scores(q, k);
      if (!values_there) wait_full(shared.full_v[before.stage], before.parity);
      start_outputs(v);
      const std::uint64_t bad = shared.bad[at.stage][0];
      RingPosition after = at;
      if constexpr (kRoom) {
        advance(after);
        keys_there = shared.full_k[after.stage].test(after.parity);
        values_there = shared.full_v[at.stage].test(at.parity);
      }
      cute::warpgroup_wait<1>();
      wgmma::fence(s);
      arrive_as_warp(shared.empty_k[at.stage]);
      const bool partly = key0 > open_until || key0 < edge || bad != 0;
      std::uint32_t next[kKeys / 4];
      float factor[Softmax::kOwn];
      if constexpr (!kRoom) {
        const auto bad_key = [&](int c) { return (bad >> Softmax::key_of(c) & 1) != 0; };
        if (partly) mask_tile<Softmax>(p, plan, w, key0, bad_key, shared.scale, s);
      }
      const bool moved = softmax.step(s, kRoom ? partly || fresh : fresh, fresh, next, factor, [&] {
        if (!kRoom || !partly) return;
        const auto bad_key = [&](int c) { return (bad >> Softmax::key_of(c) & 1) != 0; };
        mask_tile<Softmax>(p, plan, w, key0, bad_key, shared.scale, s);
      });
      finish_outputs();
      if (!fresh) arrive_as_warp(shared.empty_v[before.stage]);
        // NOTE: volatile, or the copies may come after the next product's start, which serialises
        // it.
#pragma unroll
      for (int i = 0; i < kKeys / 4; ++i) {
        asm volatile("mov.b32 %0, %1;" : "=r"(weights[i]) : "r"(next[i]));
      }
      if (moved || partly) {
        if (moved) {
#pragma unroll
          for (int i = 0; i < kHeadDim / 2; ++i) o[i] = fresh ? 0.0f : o[i] * factor[i / 2 % 2];
        }
        if (partly) {
          wait_full(shared.full_v[at.stage], at.parity);
          clean_row_values<Traits>(w, key0, shared.kv[at.stage][1], *this);
        }
      }
      fresh = false;
      wgmma::fence(o);
      wgmma::fence(weights);
      if constexpr (!kRoom) advance(after);
      at = after;
      key0 += kKeys * Traits::kTeams;
      if (key0 >= end) break;
    }
    const RingPosition last = previous(at);
    wait_full(shared.full_v[last.stage], last.parity);
    start_outputs(uniform_address(shared.kv[last.stage][1]));
    finish_outputs();
    arrive_as_warp(shared.empty_v[last.stage]);
    if constexpr (Traits::kTeams == 1) ring = at;
  }

 private:
  // To this team's next tile.
  __device__ __forceinline__ static void advance(RingPosition& at) {
#pragma unroll
    for (int i = 0; i < Traits::kTeams; ++i) at.advance(Traits::kStages);
  }
  // Of this team's tile before.
  __device__ __forceinline__ static RingPosition previous(RingPosition at) {
#pragma unroll
    for (int i = 0; i < Traits::kTeams; ++i) {
      if (--at.stage < 0) {
        at.stage = Traits::kStages - 1;
        at.parity ^= 1;
      }
    }
    return at;
  }

  __device__ __forceinline__ static std::uint32_t uniform_address(const void* at) {
    return __shfl_sync(~0u, shared_address(at), 0);
  }

  __device__ __forceinline__ static void wait_full(Barrier& full, std::uint32_t parity) {
    full.wait(parity);
    test_delay();
  }

  // Begins S = Q K^T of a tile.
  __device__ __forceinline__ void start_scores(std::uint32_t q_address, std::uint32_t k_address) {
    using Op = wgmma::SharedOp<Element, kKeys, wgmma::Major::K, wgmma::Major::K>;
    const wgmma::Place q(q_address, 16), k(k_address, 16);
    wgmma::fence(s);
    cute::warpgroup_arrive();
#pragma unroll
    for (int block = 0; block < kHeadDim / 16; ++block) {
      wgmma::fma<Op>(
          q.descriptor<1024, wgmma::k128Bytes>(block / 4 * (Traits::kRows * 128) + block % 4 * 32),
          k.descriptor<1024, wgmma::k128Bytes>(block / 4 * Traits::kPartTile + block % 4 * 32), s,
          block > 0);
    }
    cute::warpgroup_commit_batch();
  }

  // Begins O += P V of a tile, whose P is `weights`.
  __device__ __forceinline__ void start_outputs(std::uint32_t v_address) {
    using Op = wgmma::RegisterOp<Element, kHeadDim, wgmma::Major::MN>;
    const wgmma::Place v(v_address, Traits::kPartTile);
    cute::warpgroup_arrive();
#pragma unroll
    for (int block = 0; block < kKeys / 16; ++block) {
      const std::uint32_t* x = weights + 4 * block;
      const std::uint32_t a[4] = {x[0], x[1], x[2], x[3]};
      wgmma::fma<Op>(a, v.descriptor<1024, wgmma::k128Bytes>(block * 2048), o, true);
    }
    cute::warpgroup_commit_batch();
  }

  __device__ __forceinline__ void finish_outputs() {
    cute::warpgroup_wait<0>();
    wgmma::fence(o);
    wgmma::fence(weights);
  }
};

}  // namespace pagedecode::cuda
