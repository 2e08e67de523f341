// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The contents check of CUDA arrays: index arrays travel to the host, where the CPU's check reads
// them. It synchronises with the stream.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <vector>

#include "backend.h"
#include "check_contents.h"
#include "cuda/check/gather_indices.h"
#include "cuda/runtime/device_guard.h"
#include "cuda/runtime/device_query.h"
#include "cuda/runtime/workspace.h"
#include "pagedecode/error.h"

namespace pagedecode::cuda {
namespace {

class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) { check_cuda(cudaMalloc(&data_, bytes), "cudaMalloc"); }
  ~DeviceMemory() { static_cast<void>(cudaFree(data_)); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  std::int64_t* get() const { return static_cast<std::int64_t*>(data_); }

 private:
  void* data_ = nullptr;
};

// The host copies; the problem's index arrays point into them.
class HostCopies {
 public:
  explicit HostCopies(void* stream) : stream_(stream) {}

  IndexArray fetch(const IndexArray& from, std::int64_t rows, std::int64_t row_stride,
                   std::int64_t cols) {
    if (!from) return from;
    const auto count = static_cast<std::size_t>(rows * cols);
    copies_.emplace_back(count + 1);  // never null
    if (count > 0) {
      const DeviceMemory gathered(count * sizeof(std::int64_t));
      launch_gather_indices(from, rows, row_stride, cols, gathered.get(), stream_);
      const auto stream = static_cast<cudaStream_t>(stream_);
      check_cuda(cudaMemcpyAsync(copies_.back().data(), gathered.get(),
                                 count * sizeof(std::int64_t), cudaMemcpyDeviceToHost, stream),
                 "cudaMemcpyAsync");
      check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    }
    return {copies_.back().data(), 1, true};
  }

 private:
  void* stream_;
  std::vector<std::vector<std::int64_t>> copies_;
};

// The mask's width where only cu_seqlens_q tells the largest m.
void check_mask(const DecodeProblem& p, std::int64_t largest_m) {
  if (p.draft_mask.kind == MaskKind::kNone || p.max_q_known) return;
  const std::int64_t padded = (largest_m + 31) / 32 * 32;
  if (p.draft_mask.width == padded) return;
  if (p.draft_mask.kind == MaskKind::kBool && p.draft_mask.width == largest_m) return;
  throw InvalidArgument("draft_mask: got " + std::to_string(p.draft_mask.width) +
                        " columns, want " + std::to_string(largest_m) + " or " +
                        std::to_string(padded) + ", by the largest m of cu_seqlens_q");
}

}  // namespace

void check_contents(const DecodeProblem& p) {
  require_device(p.device.index);
  const DeviceGuard guard(p.device.index);
  if (is_capturing(p.stream)) {
    throw Unsupported(
        "stream: got one that captures a graph, want one that can be synchronised: the check of "
        "contents (check, PAGEDECODE_CHECK=1) copies them to the host");
  }
  HostCopies copies(p.stream);
  DecodeProblem host = p;
  host.seq_lens = copies.fetch(p.seq_lens, 1, 0, p.batch);
  host.cu_seqlens_q = copies.fetch(p.cu_seqlens_q, 1, 0, p.batch + 1);
  host.pages.indptr = copies.fetch(p.pages.indptr, 1, 0, p.batch + 1);
  if (p.pages.indptr) {
    host.pages.entries = copies.fetch(p.pages.entries, 1, 0, p.pages.width);
  } else {
    host.pages.entries = copies.fetch(p.pages.entries, p.batch, p.pages.row_stride, p.pages.width);
    host.pages.row_stride = p.pages.width;
  }
  check_lengths_and_pages(host);
  check_mask(host, check_query_offsets(host));
}

}  // namespace pagedecode::cuda
