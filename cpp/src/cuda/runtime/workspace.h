// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The library's own memory on a GPU: for each (device, stream, purpose) one block, which calls on
// that stream use one after the other. It grows and is never freed or moved, since a captured graph
// may hold its address:
//   - an outgrown block is kept; blocks double, so that all of them are smaller than the newest;
//   - a block is freed only when its stream is gone and no capture has seen it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace pagedecode::cuda {

enum class Purpose {
  kDecode,   // zeroed once; every call leaves its counters at zero
  kScratch,  // any bytes
};

// At least `bytes` (of the current device, aligned to 256) for a call on `stream`. May be called
// while the stream captures. Thread-safe. Throws CudaError.
void* workspace(Purpose purpose, int device, void* stream, std::size_t bytes);

struct WorkspaceUse {
  std::size_t blocks = 0;
  std::size_t bytes = 0;
};
// All that is held now, over devices and streams.
WorkspaceUse workspace_use();

// Whether the stream captures a graph.
bool is_capturing(void* stream);

}  // namespace pagedecode::cuda
