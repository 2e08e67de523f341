// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// For tests of the CUDA backend: a fixture that skips where there is no GPU, and arrays that exist
// twice, on the host and on the GPU, so that one call on each can be compared byte by byte.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "backend.h"
#include "pagedecode/types.h"

namespace pagedecode::test {

#define PD_CUDA(call) ASSERT_EQ(call, cudaSuccess)

inline void must(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const BackendStatus status = cuda::status();
    if (!status.runs) GTEST_SKIP() << status.why;
    must(cudaSetDevice(0));
  }
};

class Stream {
 public:
  Stream() { must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { static_cast<void>(cudaStreamDestroy(stream_)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// What `call` does on `stream`, captured under the strictest mode and ready to replay.
class Graph {
 public:
  template <typename Call>
  Graph(cudaStream_t stream, Call call) {
    cudaGraph_t graph = nullptr;
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    call();
    must(cudaStreamEndCapture(stream, &graph));
    must(cudaGraphInstantiate(&exec_, graph, 0));
    must(cudaGraphDestroy(graph));
  }
  ~Graph() { static_cast<void>(cudaGraphExecDestroy(exec_)); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void replay(cudaStream_t stream) {
    must(cudaGraphLaunch(exec_, stream));
    must(cudaStreamSynchronize(stream));
  }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

// An array on the host and on the GPU. Strides count elements; none given: contiguous.
class Twin {
 public:
  Twin(DType dtype, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides = {},
       std::int64_t first = 0)
      : first_(first * size_of(dtype)) {
    view_.dtype = dtype;
    view_.ndim = static_cast<int>(shape.size());
    if (strides.empty()) {
      strides.resize(shape.size());
      std::int64_t step = 1;
      for (std::size_t i = shape.size(); i-- > 0; step *= shape[i]) strides[i] = step;
    }
    std::int64_t last = first;
    bool empty = false;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      view_.shape[i] = shape[i];
      view_.strides[i] = strides[i];
      last += (shape[i] - 1) * strides[i];
      empty = empty || shape[i] == 0;
    }
    // Some bytes more than needed: they must stay as they are.
    host_.assign(static_cast<std::size_t>((empty ? first : last + 1) * size_of(dtype)) + 64, 0xa5);
    must(cudaMalloc(&device_, host_.size()));
    upload();
  }
  ~Twin() { static_cast<void>(cudaFree(device_)); }
  Twin(const Twin&) = delete;
  Twin& operator=(const Twin&) = delete;

  Tensor cpu() { return at(host_.data(), {DeviceType::kCpu, 0}); }
  Tensor gpu() { return at(device_, {DeviceType::kCuda, 0}); }

  template <typename T>
  T* host() {
    return reinterpret_cast<T*>(host_.data() + first_);
  }
  std::size_t bytes() const { return host_.size(); }
  // NOTE: cudaMemcpy from pageable memory may return while the last piece is under way, and streams
  // that do not block do not wait for it: without the second line replays read what was there
  // before.
  void upload() {
    must(cudaMemcpy(device_, host_.data(), host_.size(), cudaMemcpyHostToDevice));
    must(cudaDeviceSynchronize());
  }
  std::vector<std::uint8_t> download() const {
    std::vector<std::uint8_t> copy(host_.size());
    must(cudaMemcpy(copy.data(), device_, copy.size(), cudaMemcpyDeviceToHost));
    return copy;
  }
  template <typename T>
  std::vector<T> downloaded() const {
    const std::vector<std::uint8_t> raw = download();
    std::vector<T> values((raw.size() - static_cast<std::size_t>(first_)) / sizeof(T));
    std::memcpy(values.data(), raw.data() + first_, values.size() * sizeof(T));
    return values;
  }
  // Host and GPU hold the same bytes.
  bool same() const { return download() == host_; }

  template <typename T>
  Twin& set(const std::vector<T>& values) {
    std::memcpy(host<T>(), values.data(), values.size() * sizeof(T));
    upload();
    return *this;
  }

  // Random bits everywhere, but no NaN and no infinity in 16- and 32-bit floats.
  Twin& randomise(std::mt19937_64& rng) {
    for (std::uint8_t& byte : host_) byte = static_cast<std::uint8_t>(rng());
    const std::size_t size = static_cast<std::size_t>(size_of(view_.dtype));
    for (std::size_t i = 0; i + size <= host_.size(); i += size) {
      std::uint8_t* const top = &host_[i + size - 1];
      if (view_.dtype == DType::kFloat16 && (*top & 0x7c) == 0x7c) *top ^= 0x40;
      if (view_.dtype == DType::kBFloat16 || view_.dtype == DType::kFloat32) {
        *top = static_cast<std::uint8_t>((*top & 0x80) | 0x38 | (*top & 0x07));  // 1e-5 .. 1e5
      }
    }
    upload();
    return *this;
  }

 private:
  Tensor at(void* data, Device device) {
    Tensor t = view_;
    t.data = static_cast<std::uint8_t*>(data) + first_;
    t.device = device;
    return t;
  }

  Tensor view_;
  std::int64_t first_;  // byte
  std::vector<std::uint8_t> host_;
  void* device_ = nullptr;
};

}  // namespace pagedecode::test
