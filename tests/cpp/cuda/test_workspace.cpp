// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <thread>

#include "cuda/gpu.h"
#include "cuda/runtime/device_guard.h"
#include "cuda/runtime/workspace.h"
#include "pagedecode/error.h"

namespace pagedecode::cuda {
namespace {

void* workspace(Purpose purpose, int device, void* stream, std::size_t bytes) {
  return Workspace(purpose, device, stream, bytes).data();
}

using test::must;
using test::Stream;
class CudaWorkspace : public test::GpuTest {};

constexpr std::size_t kMiB = std::size_t{1} << 20;

bool all_zero(const void* data, std::size_t bytes) {
  std::vector<std::uint8_t> copy(bytes, 1);
  must(cudaMemcpy(copy.data(), data, bytes, cudaMemcpyDeviceToHost));
  return std::all_of(copy.begin(), copy.end(), [](std::uint8_t x) { return x == 0; });
}

TEST_F(CudaWorkspace, StaysAndIsZeroed) {
  const Stream stream;
  void* const first = workspace(Purpose::kDecode, 0, stream, 100);
  EXPECT_TRUE(all_zero(first, 2 * kMiB));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 256, 0u);
  EXPECT_EQ(workspace(Purpose::kDecode, 0, stream, 2 * kMiB), first);
  EXPECT_NE(workspace(Purpose::kScratch, 0, stream, 100), first);
}

TEST_F(CudaWorkspace, GrowsByDoublingAndKeepsTheOld) {
  const Stream stream;
  void* const first = workspace(Purpose::kDecode, 0, stream, 2 * kMiB);
  const std::size_t before = workspace_use().bytes;
  void* const second = workspace(Purpose::kDecode, 0, stream, 2 * kMiB + 1);
  EXPECT_NE(first, second);
  EXPECT_TRUE(all_zero(second, 4 * kMiB));
  EXPECT_EQ(workspace_use().bytes - before, 4 * kMiB);
  must(cudaMemset(first, 1, 2 * kMiB));  // still ours
  EXPECT_EQ(workspace(Purpose::kDecode, 0, stream, 1), second);
}

TEST_F(CudaWorkspace, StreamsDoNotShare) {
  const Stream a, b;
  std::set<void*> seen;
  for (cudaStream_t stream : {cudaStream_t{a}, cudaStream_t{b}, cudaStream_t{nullptr}}) {
    seen.insert(workspace(Purpose::kDecode, 0, stream, 1));
  }
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_EQ(workspace(Purpose::kDecode, 0, nullptr, 1),
            workspace(Purpose::kDecode, 0, cudaStreamLegacy, 1));
}

TEST_F(CudaWorkspace, PerThreadStreamsDoNotShare) {
  void* const here = workspace(Purpose::kDecode, 0, cudaStreamPerThread, 1);
  void* there = nullptr;
  std::thread([&] { there = workspace(Purpose::kDecode, 0, cudaStreamPerThread, 1); }).join();
  EXPECT_NE(here, there);
}

TEST_F(CudaWorkspace, IsMadeInsideACapture) {
  const Stream stream;
  void* data = nullptr;
  test::Graph graph(stream, [&] {
    EXPECT_TRUE(is_capturing(stream));
    data = workspace(Purpose::kDecode, 0, stream, 3 * kMiB);
    must(cudaMemsetAsync(data, 7, 64, stream));
  });
  EXPECT_FALSE(is_capturing(stream));
  EXPECT_TRUE(all_zero(data, 3 * kMiB)) << "nothing but the replay writes it";
  graph.replay(stream);
  EXPECT_FALSE(all_zero(data, 64));
}

TEST_F(CudaWorkspace, CapturedBlocksOutliveGrowthAndStream) {
  void* data = nullptr;
  {
    const Stream stream;
    test::Graph graph(stream, [&] { data = workspace(Purpose::kDecode, 0, stream, 1); });
    EXPECT_NE(workspace(Purpose::kDecode, 0, stream, 5 * kMiB), data);
  }
  for (int i = 0; i < 20; ++i) {
    const Stream stream;
    EXPECT_NE(workspace(Purpose::kDecode, 0, stream, 1), data);
  }
  must(cudaMemset(data, 1, 2 * kMiB));
}

TEST_F(CudaWorkspace, StreamsThatComeAndGoHoldALimitedNumber) {
  const std::size_t before = workspace_use().blocks;
  for (std::size_t i = 0; i < 3 * kMaxBlocks; ++i) {
    const Stream stream;
    void* const data = workspace(Purpose::kDecode, 0, stream, 1);
    must(cudaMemsetAsync(data, 0, 2 * kMiB, stream));
  }
  EXPECT_LE(workspace_use().blocks, before + kMaxBlocks);
}

TEST_F(CudaWorkspace, AnotherStreamWithTheSameHandleGetsZeros) {
  for (int i = 0; i < 10; ++i) {
    const Stream stream;
    void* const data = workspace(Purpose::kDecode, 0, stream, 1);
    EXPECT_TRUE(all_zero(data, 2 * kMiB));
    must(cudaMemset(data, 1, 2 * kMiB));
  }
}

TEST_F(CudaWorkspace, ThreadsAtOnce) {
  constexpr int kThreads = 8;
  std::vector<std::set<void*>> seen(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&seen, i] {
      const Stream stream;
      for (std::size_t k = 1; k < 200; ++k) {
        seen[i].insert(workspace(Purpose::kDecode, 0, stream, k * kMiB / 16));
      }
      must(cudaStreamSynchronize(stream));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& pointers : seen) EXPECT_LE(pointers.size(), 4u);  // 2, 4, 8, 16 MiB
}

TEST_F(CudaWorkspace, TooMuchIsACudaErrorThatLeavesNothingBehind) {
  const Stream stream;
  EXPECT_THROW(workspace(Purpose::kDecode, 0, stream, std::size_t{1} << 50), CudaError);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_NE(workspace(Purpose::kDecode, 0, stream, 1), nullptr);
}

TEST_F(CudaWorkspace, DeviceGuardRestores) {
  EXPECT_THROW(DeviceGuard(12345), CudaError);
  int device = -1;
  must(cudaGetDevice(&device));
  EXPECT_EQ(device, 0);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace
}  // namespace pagedecode::cuda
