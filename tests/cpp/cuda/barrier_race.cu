// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Which barriers compute-sanitizer's racecheck sees: the ring of the decode kernel (decode/load.cuh
// fills stages with cp.async, consuming warps read them by ldmatrix) and nothing else, right and
// wrong on purpose. bench/NOTES.md holds what the tool says of each.
//
//   cmake --build <folder> --target barrier_race
//   for i in 0 1 2 3 4 5 6; do compute-sanitizer --tool racecheck barrier_race $i; done
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "cuda/decode/barrier.cuh"

namespace pagedecode::cuda {
namespace {

enum class Arrival { kOfWarps, kOfLanes, kOfFirstWarp };  // of readers, at `empty`

struct Mode {
  const char* name;
  int copies;  // 0: cp.async, arrival when they land; 1: cp.async, waited for; 2: stores
  Arrival arrival;
  bool wait_full;
  int rounds;
};

// The wrong ones stop before a phase could be missed, which would hang them.
constexpr Mode kModes[] = {
    {"right: cp.async.mbarrier.arrive.noinc, a lane arrives for its warp", 0, Arrival::kOfWarps,
     true, 16},
    {"right: the same, but every lane arrives", 0, Arrival::kOfLanes, true, 16},
    {"right: cp.async.wait_all and an arrival, a lane for its warp", 1, Arrival::kOfWarps, true,
     16},
    {"right: ordinary stores, a lane for its warp", 2, Arrival::kOfWarps, true, 16},
    {"right: ordinary stores, every lane", 2, Arrival::kOfLanes, true, 16},
    {"WRONG: nobody waits for the copies", 0, Arrival::kOfLanes, false, 2},
    {"WRONG: the writer waits for the first of four warps", 0, Arrival::kOfFirstWarp, true, 3},
};

constexpr int kReaders = 4;  // warps
constexpr int kStages = 2;
constexpr int kStageBytes = 512;  // one 16-byte copy a lane
constexpr int kMostRounds = 16;

__global__ void ring(Mode mode, const uint4* from, std::uint32_t* sums) {
  __shared__ alignas(128) std::uint8_t data[kStages][kStageBytes];
  __shared__ Barrier full[kStages], empty[kStages];
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int arrivals = mode.arrival == Arrival::kOfLanes   ? kReaders * 32
                       : mode.arrival == Arrival::kOfWarps ? kReaders
                                                           : 1;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      full[s].init(32);
      empty[s].init(arrivals);
    }
  }
  __syncthreads();
  std::uint32_t sum = 0;
  for (int round = 0; round < mode.rounds; ++round) {
    const int s = round % kStages;
    const std::uint32_t parity = round / kStages % 2;
    const std::uint32_t at = cute::cast_smem_ptr_to_uint(data[s] + lane * 16);
    if (warp == kReaders) {
      empty[s].wait(parity ^ 1);
      const uint4* source = from + round * 32 + lane;
      if (mode.copies == 2) {
        *reinterpret_cast<uint4*>(data[s] + lane * 16) = *source;
        full[s].arrive();
        continue;
      }
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(source) : "memory");
      if (mode.copies == 1) {
        asm volatile("cp.async.wait_all;" ::: "memory");
        full[s].arrive();
      } else {
        full[s].arrive_after_copies();
      }
    } else {
      if (mode.wait_full) full[s].wait(parity);
      std::uint32_t r[4];
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                   : "r"(at)
                   : "memory");
      sum += r[0] + r[1] + r[2] + r[3];
      if (mode.arrival != Arrival::kOfLanes) __syncwarp();
      if (mode.arrival == Arrival::kOfLanes || lane == 0) {
        if (mode.arrival != Arrival::kOfFirstWarp || warp == 0) empty[s].arrive();
      }
    }
  }
  if (warp < kReaders) sums[threadIdx.x] = sum;
}

}  // namespace
}  // namespace pagedecode::cuda

int main(int argc, char** argv) {
  using namespace pagedecode::cuda;
  const int index = argc > 1 ? std::atoi(argv[1]) : 0;
  if (index < 0 || index >= static_cast<int>(sizeof(kModes) / sizeof(kModes[0]))) return 2;
  uint4* from = nullptr;
  std::uint32_t* sums = nullptr;
  if (cudaMalloc(&from, kMostRounds * kStageBytes) != cudaSuccess) return 1;
  if (cudaMalloc(&sums, kReaders * 32 * sizeof(std::uint32_t)) != cudaSuccess) return 1;
  if (cudaMemset(from, 1, kMostRounds * kStageBytes) != cudaSuccess) return 1;
  std::printf("%s\n", kModes[index].name);
  ring<<<1, (kReaders + 1) * 32>>>(kModes[index], from, sums);
  return cudaDeviceSynchronize() == cudaSuccess ? 0 : 1;
}
