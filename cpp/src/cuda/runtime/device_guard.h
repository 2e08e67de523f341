// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/runtime/error.h"

namespace pagedecode::cuda {

// Makes a device the thread's current one and restores the former.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) : device_(device) {
    check_cuda(cudaGetDevice(&former_), "cudaGetDevice");
    if (former_ != device_) check_cuda(cudaSetDevice(device_), "cudaSetDevice");
  }
  ~DeviceGuard() {
    if (former_ != device_) static_cast<void>(cudaSetDevice(former_));
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int device_;
  int former_ = 0;
};

}  // namespace pagedecode::cuda
