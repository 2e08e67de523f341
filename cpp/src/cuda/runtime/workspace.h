// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The library's own memory on a GPU: for each (device, stream, purpose) one block, which calls on
// that stream use one after the other. A block that a capture has seen is never freed or moved,
// since a graph may hold its address. Others are freed when
//   - their stream is gone: its handle came back as another stream;
//   - there are more of them on a device than kMaxBlocks: the one unused for longest goes.
// An outgrown block is kept: blocks double, so that all of a stream's are smaller than its newest.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <shared_mutex>

namespace pagedecode::cuda {

// torch has 65 streams on a device; whoever makes streams without end gets this many blocks.
inline constexpr std::size_t kMaxBlocks = 128;

enum class Purpose {
  kDecode,   // zeroed once; every call leaves its counters at zero
  kScratch,  // any bytes
};

// Memory for a call: hold it until the call is launched. Nothing is freed meanwhile.
class Workspace {
 public:
  // At least `bytes` of the current device, aligned to 256, for a call on `stream`; also while the
  // stream captures. Thread-safe. Throws CudaError.
  Workspace(Purpose purpose, int device, void* stream, std::size_t bytes);
  void* data() const { return data_; }

 private:
  std::shared_lock<std::shared_mutex> hold_;
  void* data_ = nullptr;
};

struct WorkspaceUse {
  std::size_t blocks = 0;
  std::size_t bytes = 0;
};
// All that is held now, over devices and streams.
WorkspaceUse workspace_use();

// Whether the stream captures a graph.
bool is_capturing(void* stream);

}  // namespace pagedecode::cuda
