// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/runtime/workspace.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "cuda/runtime/error.h"
#include "pagedecode/error.h"

namespace pagedecode::cuda {
namespace {

// cudaMalloc hands out whole pages of this size anyway.
constexpr std::size_t kGranule = std::size_t{2} << 20;

struct Block {
  void* data = nullptr;
  std::size_t bytes = 0;
  bool captured = false;  // a graph may hold its address
};

// A stream's id is never given twice, a handle is: the stream may be destroyed and another made.
using Key = std::tuple<int, unsigned long long, Purpose>;  // device, stream id, purpose

struct Pool {
  std::mutex mutex;
  std::map<Key, Block> current;
  std::map<std::pair<int, void*>, unsigned long long> ids;  // (device, handle) -> id seen last
  std::vector<Block> kept;                                  // outgrown, or their stream is gone
};

Pool& pool() {
  static Pool* const instance = new Pool;  // never destroyed: CUDA may be gone before it at exit
  return *instance;
}

// Allows this thread, while it captures, the calls that are not captured but done now.
class RelaxedCapture {
 public:
  RelaxedCapture() {
    check_cuda(cudaThreadExchangeStreamCaptureMode(&mode_), "cudaThreadExchangeStreamCaptureMode");
  }
  ~RelaxedCapture() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// A stream of our own, for what must neither be captured nor wait for the caller's work.
class PrivateStream {
 public:
  PrivateStream() {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  ~PrivateStream() { static_cast<void>(cudaStreamDestroy(stream_)); }
  PrivateStream(const PrivateStream&) = delete;
  PrivateStream& operator=(const PrivateStream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

Block allocate(Purpose purpose, std::size_t bytes) {
  const RelaxedCapture relaxed;
  Block block;
  block.bytes = (bytes + kGranule - 1) / kGranule * kGranule;
  const cudaError_t error = cudaMalloc(&block.data, block.bytes);
  if (error != cudaSuccess) {
    const std::string what = "cudaMalloc of " + std::to_string(block.bytes) + " bytes of workspace";
    throw_cuda_error(error, what.c_str());
  }
  if (purpose == Purpose::kDecode) {
    // Zeroed before this returns, whichever stream uses it first; user work is not waited for.
    try {
      const PrivateStream stream;
      check_cuda(cudaMemsetAsync(block.data, 0, block.bytes, stream.get()), "cudaMemsetAsync");
      check_cuda(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
    } catch (...) {
      static_cast<void>(cudaFree(block.data));
      throw;
    }
  }
  return block;
}

// The stream that had this handle is gone: so are its blocks, unless a graph may replay on them.
void retire(Pool& p, int device, unsigned long long id, bool capturing) {
  for (const Purpose purpose : {Purpose::kDecode, Purpose::kScratch}) {
    const auto found = p.current.find({device, id, purpose});
    if (found == p.current.end()) continue;
    const Block block = found->second;
    p.current.erase(found);
    if (block.captured || capturing) {
      p.kept.push_back(block);
    } else {
      // cudaFree waits for the work that the stream may have left on the device.
      const RelaxedCapture relaxed;
      check_cuda(cudaFree(block.data), "cudaFree");
    }
  }
}

}  // namespace

bool is_capturing(void* stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status),
             "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

void* workspace(Purpose purpose, int device, void* stream, std::size_t bytes) {
  const bool capturing = is_capturing(stream);
  unsigned long long id = 0;
  check_cuda(cudaStreamGetId(static_cast<cudaStream_t>(stream), &id), "cudaStreamGetId");

  Pool& p = pool();
  const std::lock_guard<std::mutex> lock(p.mutex);
  // Handles 0, 1 and 2 are CUDA's default streams; the last is another stream in each thread.
  if (reinterpret_cast<std::uintptr_t>(stream) > 2) {
    const auto [seen, is_new] = p.ids.try_emplace({device, stream}, id);
    if (!is_new && seen->second != id) {
      retire(p, device, seen->second, capturing);
      seen->second = id;
    }
  }
  Block& block = p.current[{device, id, purpose}];
  if (block.bytes < bytes) {
    const Block larger = allocate(purpose, std::max(bytes, 2 * block.bytes));
    if (block.data != nullptr) p.kept.push_back(block);
    block = larger;
  }
  block.captured = block.captured || capturing;
  return block.data;
}

WorkspaceUse workspace_use() {
  Pool& p = pool();
  const std::lock_guard<std::mutex> lock(p.mutex);
  WorkspaceUse use;
  const auto count = [&use](const Block& block) {
    if (block.data == nullptr) return;
    ++use.blocks;
    use.bytes += block.bytes;
  };
  for (const auto& [key, block] : p.current) count(block);
  for (const Block& block : p.kept) count(block);
  return use;
}

}  // namespace pagedecode::cuda
