// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The slot of each query row's own key, one thread a row: a binary search of cu_seqlens_q finds the
// row's sequence. Lengths and offsets may be anything: what leads outside the table is -1.
#include "cuda/runtime/launch.h"
#include "cuda/slots/slots.h"
#include "sequence.h"

namespace pagedecode::cuda {
namespace {

constexpr int kThreads = 128;

// The sequence whose rows hold `row`, by offsets that do not decrease; -1 or B if there is none.
__device__ __forceinline__ std::int64_t sequence_of(const SlotsProblem& p, std::int64_t row) {
  std::int64_t low = 0, high = p.batch + 1;  // first b with cu_seqlens_q[b] > row
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (p.cu_seqlens_q[middle] > row) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low - 1;
}

__device__ __forceinline__ std::int64_t slot_of(const SlotsProblem& p, std::int64_t row) {
  const std::int64_t b = sequence_of(p, row);
  if (b < 0 || b >= p.batch) return -1;
  const std::int64_t begin = clamp64(p.cu_seqlens_q[b], 0, p.total_q);
  const std::int64_t end = clamp64(p.cu_seqlens_q[b + 1], begin, p.total_q);
  if (row < begin || row >= end) return -1;
  const std::int64_t n = max64(p.seq_lens[b], 0);
  const std::int64_t key = n - (end - row);  // n - m + i
  if (key < 0) return -1;
  std::int64_t first = 0;
  const std::int64_t entries = page_entries(p.pages, b, &first);
  const std::int64_t page = key / p.page_size;
  if (page >= entries) return -1;
  SequenceView s = {};
  s.first_page = first;
  const std::int64_t id = page_id(p.pages, s, page);
  if (id < 0 || id >= INT64_MAX / p.page_size) return -1;
  return id * p.page_size + key % p.page_size;
}

__global__ void __launch_bounds__(kThreads) find_slots(__grid_constant__ const SlotsProblem p) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       row < p.total_q; row += step) {
    p.out[row * p.out_stride] = slot_of(p, row);
  }
}

}  // namespace

void launch_slots(const SlotsProblem& p) {
  launch("slots", find_slots, dim3(blocks_for(p.total_q, kThreads)), dim3(kThreads), 0, p.stream,
         p);
}

}  // namespace pagedecode::cuda
