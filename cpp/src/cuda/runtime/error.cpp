// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/runtime/error.h"

#include "pagedecode/error.h"

namespace pagedecode::cuda {
namespace {

// What the user can do about it, where CUDA's own words do not say.
const char* advice(cudaError_t error) {
  switch (error) {
    case cudaErrorNoKernelImageForDevice:
      return ": this build holds no code for this GPU (see pagedecode.backends())";
    case cudaErrorUnsupportedPtxVersion:
      return ": this build's PTX is newer than the driver; update the driver";
    case cudaErrorInsufficientDriver:
      return ": no driver, or one too old (see pagedecode.backends())";
    case cudaErrorStreamCaptureImplicit:
      return ": the default stream cannot be used while another stream captures a graph";
    case cudaErrorInvalidResourceHandle:
      return ": is the stream one of the arrays' device, and still alive?";
    default:
      return "";
  }
}

}  // namespace

std::string error_sentence(cudaError_t error, const char* what) {
  return std::string("CUDA: ") + what + " failed: " + cudaGetErrorString(error) + " (" +
         cudaGetErrorName(error) + ", " + std::to_string(static_cast<int>(error)) + ")" +
         advice(error);
}

void throw_cuda_error(cudaError_t error, const char* what) {
  // Clears the error, unless it is a sticky one of a broken context.
  static_cast<void>(cudaGetLastError());
  throw CudaError(error_sentence(error, what));
}

}  // namespace pagedecode::cuda
