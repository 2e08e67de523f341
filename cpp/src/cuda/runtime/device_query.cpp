// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/runtime/device_query.h"

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <mutex>
#include <string>

#include "cuda/runtime/error.h"
#include "cuda/runtime/status.h"
#include "pagedecode/error.h"

namespace pagedecode::cuda {
namespace {

constexpr int kMaxDevices = 64;

[[noreturn]] void refuse(int index, const std::string& why) {
  throw Unsupported("device: got cuda:" + std::to_string(index) +
                    ", want a GPU that pagedecode runs on: " + why);
}

int attribute(cudaDeviceAttr name, int index) {
  int value = 0;
  check_cuda(cudaDeviceGetAttribute(&value, name, index), "cudaDeviceGetAttribute");
  return value;
}

DeviceInfo query(int index) {
  const Probe found = probe();
  if (found.driver == 0 || found.error != cudaSuccess || found.gpus.empty()) {
    refuse(index, why_not(found));
  }
  if (index < 0 || index >= static_cast<int>(found.gpus.size())) {
    refuse(index, "there are " + std::to_string(found.gpus.size()) + " GPUs");
  }
  const Gpu& gpu = found.gpus[static_cast<std::size_t>(index)];
  const std::string why = why_not_gpu(gpu, found.driver, found.runtime);
  if (!why.empty()) refuse(index, why);

  DeviceInfo info;
  info.ordinal = index;
  info.sm_count = attribute(cudaDevAttrMultiProcessorCount, index);
  info.cc_major = gpu.major;
  info.cc_minor = gpu.minor;
  info.max_smem_optin = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, index);
  return info;
}

}  // namespace

const DeviceInfo& require_device(int index) {
  static std::array<std::atomic<const DeviceInfo*>, kMaxDevices> known = {};
  static std::mutex mutex;
  if (index < 0 || index >= kMaxDevices) refuse(index, "the device's number is out of range");
  std::atomic<const DeviceInfo*>& slot = known[static_cast<std::size_t>(index)];
  if (const DeviceInfo* info = slot.load(std::memory_order_acquire)) return *info;
  const std::lock_guard<std::mutex> lock(mutex);
  if (const DeviceInfo* info = slot.load(std::memory_order_acquire)) return *info;
  const DeviceInfo* info = new DeviceInfo(query(index));  // lives as long as the process
  slot.store(info, std::memory_order_release);
  return *info;
}

}  // namespace pagedecode::cuda
