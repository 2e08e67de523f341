// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/runtime/status.h"

namespace pagedecode::cuda {
namespace {

std::string version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

}  // namespace

Probe probe() {
  Probe found;
  // NOTE: with no driver this succeeds and says 0.
  if (cudaDriverGetVersion(&found.driver) != cudaSuccess) found.driver = 0;
  if (cudaRuntimeGetVersion(&found.runtime) != cudaSuccess) found.runtime = CUDART_VERSION;
  int count = 0;
  found.error = cudaGetDeviceCount(&count);
  for (int i = 0; found.error == cudaSuccess && i < count; ++i) {
    Gpu gpu;
    cudaDeviceProp properties = {};
    found.error = cudaGetDeviceProperties(&properties, i);
    gpu.major = properties.major;
    gpu.minor = properties.minor;
    gpu.name = properties.name;
    if (found.error == cudaSuccess) found.gpus.push_back(gpu);
  }
  static_cast<void>(cudaGetLastError());  // leave nothing behind for other libraries
  return found;
}

std::string why_not_gpu(const Gpu& gpu, int driver, int runtime) {
  const std::string has = gpu.name + " has compute capability " + std::to_string(gpu.major) + "." +
                          std::to_string(gpu.minor);
  if (gpu.major < 8) return has + ", this build has code for 8.0 and newer";
  // 8.x runs the sm_80 code and 9.0 the sm_90a code; what is newer compiles the PTX at first use.
  const bool compiled = gpu.major == 8 || (gpu.major == 9 && gpu.minor == 0);
  if (!compiled && driver < runtime) {
    return has + ", which needs the PTX of this build, of CUDA " + version(runtime) +
           ", but the driver supports only " + version(driver);
  }
  return "";
}

std::string why_not(const Probe& probe) {
  if (probe.driver == 0) return "no NVIDIA driver is installed";
  if (probe.error == cudaErrorInsufficientDriver) {
    return "the NVIDIA driver is too old: it supports CUDA " + version(probe.driver) +
           ", this build needs " + version(probe.runtime / 1000 * 1000);
  }
  if (probe.error == cudaErrorNoDevice || (probe.error == cudaSuccess && probe.gpus.empty())) {
    return "no NVIDIA GPU is visible (is CUDA_VISIBLE_DEVICES set?)";
  }
  if (probe.error != cudaSuccess) {
    return std::string("CUDA does not start: ") + cudaGetErrorString(probe.error) + " (" +
           cudaGetErrorName(probe.error) + ")";
  }
  for (const Gpu& gpu : probe.gpus) {
    if (why_not_gpu(gpu, probe.driver, probe.runtime).empty()) return "";
  }
  return why_not_gpu(probe.gpus.front(), probe.driver, probe.runtime);
}

}  // namespace pagedecode::cuda
