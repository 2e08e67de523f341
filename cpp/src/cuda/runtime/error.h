// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Every call into the CUDA runtime, launches included, goes through check_cuda: what fails throws
// CudaError and leaves no error behind for the next library that asks for the last one.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace pagedecode::cuda {

// The sentence for an error of `what` (a call or a kernel's name).
std::string error_sentence(cudaError_t error, const char* what);

[[noreturn]] void throw_cuda_error(cudaError_t error, const char* what);

inline void check_cuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw_cuda_error(error, what);
}

}  // namespace pagedecode::cuda
