// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The sentences that say why CUDA does not run; they need no GPU.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "backend.h"
#include "cuda/runtime/device_query.h"
#include "cuda/runtime/error.h"
#include "cuda/runtime/status.h"
#include "pagedecode/error.h"

namespace pagedecode::cuda {
namespace {

Probe healthy(std::vector<Gpu> gpus) {
  Probe probe;
  probe.driver = 13000;
  probe.runtime = 13000;
  probe.gpus = std::move(gpus);
  return probe;
}

TEST(Status, RunsOnWhatItWasBuiltFor) {
  EXPECT_EQ(why_not(healthy({{8, 0, "A"}})), "");
  EXPECT_EQ(why_not(healthy({{8, 9, "B"}})), "");
  EXPECT_EQ(why_not(healthy({{9, 0, "C"}})), "");
  EXPECT_EQ(why_not(healthy({{10, 0, "D"}})), "");
  EXPECT_EQ(why_not(healthy({{7, 5, "old"}, {9, 0, "C"}})), "") << "one of them is enough";
}

TEST(Status, NoDriver) {
  Probe probe;
  probe.error = cudaErrorInsufficientDriver;
  probe.runtime = 13000;
  EXPECT_EQ(why_not(probe), "no NVIDIA driver is installed");
}

TEST(Status, OldDriver) {
  Probe probe;
  probe.error = cudaErrorInsufficientDriver;
  probe.driver = 12040;
  probe.runtime = 13010;
  EXPECT_EQ(why_not(probe),
            "the NVIDIA driver is too old: it supports CUDA 12.4, this build needs 13.0");
}

TEST(Status, NoGpu) {
  Probe probe = healthy({});
  EXPECT_NE(why_not(probe).find("no NVIDIA GPU is visible"), std::string::npos);
  probe.error = cudaErrorNoDevice;
  EXPECT_NE(why_not(probe).find("no NVIDIA GPU is visible"), std::string::npos);
}

TEST(Status, GpuNotBuiltFor) {
  EXPECT_EQ(why_not(healthy({{7, 5, "Tesla T4"}})),
            "Tesla T4 has compute capability 7.5, this build has code for 8.0 and newer");
}

TEST(Status, PtxNewerThanTheDriver) {
  Probe probe = healthy({{10, 0, "B200"}});
  probe.runtime = 13010;
  EXPECT_EQ(why_not(probe),
            "B200 has compute capability 10.0, which needs the PTX of this build, of CUDA 13.1, "
            "but the driver supports only 13.0");
  probe.gpus[0] = {9, 0, "H200"};
  EXPECT_EQ(why_not(probe), "") << "compiled code runs on any driver of the same major version";
}

TEST(Status, OtherErrors) {
  Probe probe = healthy({});
  probe.error = cudaErrorInitializationError;
  EXPECT_NE(why_not(probe).find("CUDA does not start"), std::string::npos);
}

TEST(Status, OfThisMachine) {
  const BackendStatus status = cuda::status();
  EXPECT_TRUE(status.built);
  EXPECT_EQ(status.runs, status.why.empty());
  if (status.runs) {
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "asking leaves no error behind";
  }
}

TEST(Status, CallsWithoutAGpuSayWhy) {
  const BackendStatus status = cuda::status();
  if (status.runs) GTEST_SKIP() << "there is a GPU";
  try {
    require_device(0);
    FAIL();
  } catch (const Unsupported& error) {
    EXPECT_NE(std::string(error.what()).find(status.why), std::string::npos) << error.what();
  }
}

TEST(Errors, NameTheCallAndTheError) {
  const std::string text = error_sentence(cudaErrorMemoryAllocation, "cudaMalloc");
  EXPECT_EQ(text, "CUDA: cudaMalloc failed: out of memory (cudaErrorMemoryAllocation, 2)");
  EXPECT_THROW(check_cuda(cudaErrorUnknown, "x"), CudaError);
}

}  // namespace
}  // namespace pagedecode::cuda
