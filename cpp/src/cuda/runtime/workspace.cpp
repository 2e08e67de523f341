// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/runtime/workspace.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda/runtime/error.h"

namespace pagedecode::cuda {
namespace {

// cudaMalloc hands out whole pages of this size anyway.
constexpr std::size_t kGranule = std::size_t{2} << 20;

// A stream, as far as its handle tells: handles come back once their stream is destroyed.
struct Key {
  int device;
  std::uintptr_t handle;
  std::thread::id thread;  // of cudaStreamPerThread, which is another stream in each thread
  Purpose purpose;

  friend bool operator<(const Key& a, const Key& b) {
    return std::tie(a.device, a.handle, a.thread, a.purpose) <
           std::tie(b.device, b.handle, b.thread, b.purpose);
  }
};

struct Block {
  void* data = nullptr;
  std::size_t bytes = 0;
  // Of the stream, never given twice; 0: not known. CUDA does not tell it during a capture, so
  // that a capture on a handle that came back takes the former stream's block.
  unsigned long long stream_id = 0;
  std::atomic<bool> captured{false};   // a graph may hold its address
  std::atomic<std::uint64_t> used{0};  // when; larger is later
};

struct Pool {
  // Shared: from looking a block up to launching on it. Alone: while blocks come and go.
  std::shared_mutex mutex;
  std::map<Key, Block> current;
  std::vector<std::pair<void*, std::size_t>> kept;  // outgrown, or of a stream that is gone
  std::atomic<std::uint64_t> clock{0};
};

Pool& pool() {
  static Pool* const instance = new Pool;  // never destroyed: CUDA may be gone before it at exit
  return *instance;
}

Key key_of(Purpose purpose, int device, void* stream) {
  Key key{device, reinterpret_cast<std::uintptr_t>(stream), {}, purpose};
  if (stream == nullptr) key.handle = reinterpret_cast<std::uintptr_t>(cudaStreamLegacy);
  if (stream == cudaStreamPerThread) key.thread = std::this_thread::get_id();
  return key;
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

void* allocate(Purpose purpose, std::size_t bytes) {
  const RelaxedCapture relaxed;
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, bytes);
  if (error != cudaSuccess) {
    const std::string what = "cudaMalloc of " + std::to_string(bytes) + " bytes of workspace";
    throw_cuda_error(error, what.c_str());
  }
  if (purpose == Purpose::kDecode) {
    // Zeroed before this returns, whichever stream uses it first; user work is not waited for.
    try {
      const PrivateStream stream;
      check_cuda(cudaMemsetAsync(data, 0, bytes, stream.get()), "cudaMemsetAsync");
      check_cuda(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
    } catch (...) {
      static_cast<void>(cudaFree(data));
      throw;
    }
  }
  return data;
}

// Forgets a block; frees it unless a graph may replay on it.
void retire(Pool& p, std::map<Key, Block>::iterator at) {
  Block& block = at->second;
  if (block.captured) {
    p.kept.emplace_back(block.data, block.bytes);
  } else {
    // cudaFree waits for the work that may still use the block.
    const RelaxedCapture relaxed;
    check_cuda(cudaFree(block.data), "cudaFree");
  }
  p.current.erase(at);
}

// Makes room for one block more on the device.
void evict(Pool& p, int device) {
  std::size_t count = 0;
  auto oldest = p.current.end();
  for (auto at = p.current.begin(); at != p.current.end(); ++at) {
    if (at->first.device != device || at->second.captured) continue;
    ++count;
    if (oldest == p.current.end() || at->second.used < oldest->second.used) oldest = at;
  }
  if (count >= kMaxBlocks) retire(p, oldest);
}

// The block of a stream, new or grown. The pool is locked for this thread alone.
void provide(Pool& p, const Key& key, unsigned long long stream_id, bool capturing,
             std::size_t bytes) {
  auto at = p.current.find(key);
  const bool other_stream = at != p.current.end() && stream_id != 0 && at->second.stream_id != 0 &&
                            at->second.stream_id != stream_id;
  if (other_stream) {
    retire(p, at);
    at = p.current.end();
  }
  const std::size_t former = at == p.current.end() ? 0 : at->second.bytes;
  if (former == 0 && !capturing) evict(p, key.device);
  if (former < bytes) {
    const std::size_t wanted = (std::max(bytes, 2 * former) + kGranule - 1) / kGranule * kGranule;
    void* const data = allocate(key.purpose, wanted);
    if (former > 0) p.kept.emplace_back(at->second.data, former);
    Block& block = p.current[key];
    block.data = data;
    block.bytes = wanted;
    block.captured = false;
  }
  if (stream_id != 0) p.current[key].stream_id = stream_id;
}

}  // namespace

bool is_capturing(void* stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status),
             "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

Workspace::Workspace(Purpose purpose, int device, void* stream, std::size_t bytes) {
  const Key key = key_of(purpose, device, stream);
  const bool capturing = is_capturing(stream);
  unsigned long long stream_id = 0;
  if (!capturing) {
    check_cuda(cudaStreamGetId(static_cast<cudaStream_t>(stream), &stream_id), "cudaStreamGetId");
  }
  Pool& p = pool();
  for (;;) {
    hold_ = std::shared_lock<std::shared_mutex>(p.mutex);
    const auto found = p.current.find(key);
    if (found != p.current.end()) {
      Block& block = found->second;
      const bool same_stream = stream_id == 0 || block.stream_id == stream_id;
      if (same_stream && block.bytes >= bytes) {
        if (capturing) block.captured = true;
        block.used = ++p.clock;
        data_ = block.data;
        return;
      }
    }
    hold_.unlock();
    const std::unique_lock<std::shared_mutex> alone(p.mutex);
    provide(p, key, stream_id, capturing, bytes);
  }
}

WorkspaceUse workspace_use() {
  Pool& p = pool();
  const std::shared_lock<std::shared_mutex> lock(p.mutex);
  WorkspaceUse use;
  const auto count = [&use](std::size_t bytes) {
    ++use.blocks;
    use.bytes += bytes;
  };
  for (const auto& [key, block] : p.current) count(block.bytes);
  for (const auto& [data, bytes] : p.kept) count(bytes);
  return use;
}

}  // namespace pagedecode::cuda
