// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Whether the CUDA backend can run here, and if not, the one sentence that says why. Asking makes
// no context on any GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <vector>

namespace pagedecode::cuda {

struct Gpu {
  int major = 0;  // compute capability
  int minor = 0;
  std::string name;
};

// What the driver answered.
struct Probe {
  cudaError_t error = cudaSuccess;  // of counting the GPUs
  int driver = 0;                   // CUDA version that the driver supports: 12040 is 12.4; 0: none
  int runtime = 0;                  // CUDA version that this build was made with
  std::vector<Gpu> gpus;
};

Probe probe();

// Empty if this build has code for the GPU.
std::string why_not_gpu(const Gpu& gpu, int driver, int runtime);
// Empty if this build runs on one of the GPUs.
std::string why_not(const Probe& probe);

}  // namespace pagedecode::cuda
