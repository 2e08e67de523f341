// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Times the decode kernel on the rows of the performance table, beside the ceiling: one launch that
// reads the same bytes with 16-byte loads. CUDA graphs of rotating instances, so that the caches
// read exceed L2. A developer's tool; the bench proper is in bench/.
//   decode_timing [kv=bf16|fp16|e4m3|int8] [q=4] [d=64] [page=16] [hnd=1] [heads=64] [kv_heads=8]
//   [mma=1]
// kv and q choose rows of the table (fp16 and int8 in the place of bf16 and e4m3); d, page, hnd,
// heads and kv_heads change all of them; with mma=1 the generic kernel is timed beside.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cuda/decode/launch.h"
#include "cuda/decode_case.h"

namespace {

using namespace pagedecode;

void check(cudaError_t e) {
  if (e != cudaSuccess) {
    std::printf("CUDA: %s\n", cudaGetErrorString(e));
    std::exit(1);
  }
}

__global__ void __launch_bounds__(512)
    read_all(const uint4* k, const uint4* v, std::size_t n, unsigned* out) {
  constexpr int U = 8;
  unsigned acc = 0;
  const std::size_t stride = std::size_t(gridDim.x) * blockDim.x;
  std::size_t i = std::size_t(blockIdx.x) * blockDim.x + threadIdx.x;
  auto at = [&](std::size_t x) { return x < n ? k + x : v + (x - n); };
  for (; i + (U - 1) * stride < 2 * n; i += U * stride) {
    uint4 x[U];
#pragma unroll
    for (int u = 0; u < U; ++u) x[u] = __ldcs(at(i + u * stride));
#pragma unroll
    for (int u = 0; u < U; ++u) acc ^= x[u].x ^ x[u].y ^ x[u].z ^ x[u].w;
  }
  for (; i < 2 * n; i += stride) acc ^= at(i)->x;
  if (acc == 0x12345679u) *out = acc;
}

__device__ float noise(std::size_t i, unsigned seed) {
  unsigned long long x = (i + 1) * 0x9E3779B97F4A7C15ull + seed * 0xD1B54A32D192ED03ull;
  x ^= x >> 31;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 27;
  const float u = float(unsigned(x) >> 8) / 16777216.0f, w = float(unsigned(x >> 40)) / 16777216.0f;
  return sqrtf(-2.0f * logf(u + 1e-7f)) * cospif(2.0f * w);
}

__global__ void fill16(__nv_bfloat16* p, std::size_t n, unsigned seed) {
  for (std::size_t i = blockIdx.x * std::size_t(blockDim.x) + threadIdx.x; i < n;
       i += std::size_t(gridDim.x) * blockDim.x) {
    p[i] = __float2bfloat16(noise(i, seed));
  }
}
__global__ void fill8(unsigned char* p, std::size_t n, unsigned seed) {
  for (std::size_t i = blockIdx.x * std::size_t(blockDim.x) + threadIdx.x; i < n;
       i += std::size_t(gridDim.x) * blockDim.x) {
    float x = noise(i, seed);
    unsigned short y;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(y) : "f"(0.0f), "f"(x));
    p[i] = static_cast<unsigned char>(y);
  }
}

cudaStream_t stream;

template <class F>
float time_us(F launch, int instances) {
  const int repeats = std::max(1, 8 / instances);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int r = 0; r < repeats; ++r) {
    for (int i = 0; i < instances; ++i) launch(i);
  }
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t a, b;
  check(cudaEventCreate(&a));
  check(cudaEventCreate(&b));
  std::vector<float> times;
  for (int it = 0; it < 17; ++it) {
    check(cudaEventRecord(a, stream));
    check(cudaGraphLaunch(exec, stream));
    check(cudaEventRecord(b, stream));
    check(cudaEventSynchronize(b));
    float ms;
    check(cudaEventElapsedTime(&ms, a, b));
    if (it > 1) times.push_back(ms * 1e3f / float(repeats * instances));
  }
  check(cudaGraphExecDestroy(exec));
  check(cudaGraphDestroy(graph));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

struct Row {
  bool fp8;
  int q, batch, n;
  bool skewed;
  double best, fa2;  // microseconds, of the table
};

const Row kRows[] = {
    {false, 1, 1, 8192, false, 15.4, 20.3},    {false, 1, 1, 131072, false, 129.8, 131.5},
    {false, 1, 16, 4096, false, 66.7, 73.3},   {false, 1, 64, 1024, false, 72.2, 74.6},
    {false, 1, 64, 8192, false, 482.0, 482.0}, {false, 1, 32, 8192, true, 265.3, 435.6},
    {false, 4, 1, 8192, false, 18.5, 20.9},    {false, 4, 1, 131072, false, 135.6, 141.2},
    {false, 4, 16, 4096, false, 71.0, 86.8},   {false, 4, 64, 1024, false, 81.4, 81.8},
    {false, 4, 64, 8192, false, 496.6, 581.8}, {false, 4, 32, 8192, true, 264.8, 840.7},
    {false, 8, 16, 8192, false, 134.4, 161.5}, {false, 16, 16, 8192, false, 138.8, 252.9},
    {true, 1, 1, 8192, false, 12.0, 20.6},     {true, 1, 1, 131072, false, 70.3, 113.7},
    {true, 1, 16, 4096, false, 39.5, 63.6},    {true, 1, 64, 1024, false, 40.4, 66.8},
    {true, 1, 64, 8192, false, 260.1, 385.0},  {true, 1, 32, 8192, true, 136.4, 619.9},
    {true, 4, 1, 8192, false, 16.7, 23.1},     {true, 4, 1, 131072, false, 82.7, 190.5},
    {true, 4, 16, 4096, false, 46.3, 112.3},   {true, 4, 64, 1024, false, 61.0, 104.7},
    {true, 4, 64, 8192, false, 298.1, 720.0},  {true, 4, 32, 8192, true, 159.5, 1172.6},
    {true, 8, 16, 8192, false, 94.2, 210.4},   {true, 16, 16, 8192, false, 103.4, 303.6},
};

std::vector<int> lengths(const Row& r) {
  std::vector<int> n(r.batch, r.n);
  if (!r.skewed) return n;
  std::mt19937 rng(7);
  std::lognormal_distribution<double> draw(std::log(8192.0) - 0.72, 1.2);
  double sum = 0;
  std::vector<double> x(r.batch);
  for (double& y : x) sum += y = draw(rng);
  for (int i = 0; i < r.batch; ++i) {
    n[i] = std::clamp(int(x[i] * 8192.0 * r.batch / sum), 64, 131072);
  }
  return n;
}

}  // namespace

int main(int argc, char** argv) {
  // The value of an argument name=value.
  const auto text = [&](const std::string& name) -> std::string {
    for (int i = 1; i < argc; ++i) {
      if (std::string(argv[i]).rfind(name + "=", 0) == 0) return argv[i] + name.size() + 1;
    }
    return {};
  };
  const auto number = [&](const std::string& name, int otherwise) {
    return text(name).empty() ? otherwise : std::atoi(text(name).c_str());
  };
  const std::string kv = text("kv");
  const bool only8 = kv == "e4m3" || kv == "int8";
  const bool only16 = kv == "bf16" || kv == "fp16";
  const DType type16 = kv == "fp16" ? DType::kFloat16 : DType::kBFloat16;
  const DType type8 = kv == "int8" ? DType::kInt8 : DType::kFloat8E4M3;
  const int only_q = number("q", 0);
  const bool hnd = number("hnd", 0) != 0, beside = number("mma", 0) != 0;
  const int Hq = number("heads", 64), Hkv = number("kv_heads", 8), D = number("d", 128),
            P = number("page", 64);
  check(cudaStreamCreate(&stream));
  const cuda::DeviceInfo& device = test::device_info();
  const std::size_t pool = std::size_t{4} << 30;  // bytes of each of K and V
  void *k, *v;
  unsigned* sink;
  check(cudaMalloc(&k, pool));
  check(cudaMalloc(&v, pool));
  check(cudaMalloc(&sink, 4));
  void* workspace;
  const std::size_t workspace_size = std::size_t{256} << 20;
  check(cudaMalloc(&workspace, workspace_size));
  check(cudaMemset(workspace, 0, workspace_size));
  __nv_bfloat16 *q, *out;
  check(cudaMalloc(&q, std::size_t{64} << 20));
  check(cudaMalloc(&out, std::size_t{64} << 20));
  fill16<<<1024, 256, 0, stream>>>(q, std::size_t{32} << 20, 3);
  float* lse;
  check(cudaMalloc(&lse, std::size_t{8} << 20));
  int filled = -1;
  std::printf("%d and %d heads of %d, pages of %d, %s\n", Hq, Hkv, D, P, hnd ? "HND" : "NHD");
  std::printf("%-5s %3s %3s %7s %6s %8s %8s %6s %6s %6s %8s  %s\n", "kv", "q", "B", "n", "MB",
              "ceiling", "ours", "ratio", "/best", "/fa2", "mma", "kernel");
  double geo = 0;
  int count = 0;
  for (const Row& r : kRows) {
    if ((only8 && !r.fp8) || (only16 && r.fp8) || (only_q && only_q != r.q)) continue;
    if (filled != int(r.fp8)) {
      filled = int(r.fp8);
      if (r.fp8) {
        fill8<<<4096, 256, 0, stream>>>(static_cast<unsigned char*>(k), pool, 1);
        fill8<<<4096, 256, 0, stream>>>(static_cast<unsigned char*>(v), pool, 2);
      } else {
        fill16<<<4096, 256, 0, stream>>>(static_cast<__nv_bfloat16*>(k), pool / 2, 1);
        fill16<<<4096, 256, 0, stream>>>(static_cast<__nv_bfloat16*>(v), pool / 2, 2);
      }
    }
    const std::vector<int> n = lengths(r);
    std::vector<int> cu(r.batch + 1);
    std::int64_t pages = 0, width = 0;
    double bytes = 0;
    for (int b = 0; b < r.batch; ++b) {
      cu[b + 1] = cu[b] + r.q;
      pages += (n[b] + P - 1) / P;
      width = std::max<std::int64_t>(width, (n[b] + P - 1) / P);
      bytes += 2.0 * n[b] * Hkv * D * (r.fp8 ? 1 : 2);
    }
    const std::int64_t page_bytes = std::int64_t(P) * Hkv * D * (r.fp8 ? 1 : 2);
    int instances = 1;
    while (instances < 32 && bytes * instances < 512e6) instances *= 2;
    std::vector<int> ids(pages * instances);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = int(i);
    std::mt19937 rng(5);
    std::vector<DecodeProblem> problems;
    std::vector<void*> owned;
    auto up = [&](const std::vector<int>& x) {
      void* d;
      check(cudaMalloc(&d, x.size() * 4));
      check(cudaMemcpy(d, x.data(), x.size() * 4, cudaMemcpyHostToDevice));
      owned.push_back(d);
      return d;
    };
    const void* lens = up(n);
    const void* cus = up(cu);
    for (int i = 0; i < instances; ++i) {
      std::vector<int> own(pages);
      for (std::int64_t x = 0; x < pages; ++x) own[x] = int(i * pages + x);
      std::shuffle(own.begin(), own.end(), rng);
      std::vector<int> table(r.batch * width, -1);
      std::int64_t next = 0;
      for (int b = 0; b < r.batch; ++b) {
        for (int x = 0; x < (n[b] + P - 1) / P; ++x) table[b * width + x] = own[next++];
      }
      DecodeProblem p;
      p.batch = r.batch;
      p.total_q = std::int64_t(r.batch) * r.q;
      p.max_q = r.q;
      p.num_q_heads = Hq;
      p.num_kv_heads = Hkv;
      p.group = Hq / Hkv;
      p.head_dim = D;
      p.page_size = P;
      p.q = {q, r.fp8 ? DType::kBFloat16 : type16, 0, Hq * D, D};
      p.out = {out, p.q.dtype, 0, Hq * D, D};
      p.lse = {lse, Hq, 1};
      const std::int64_t across = std::int64_t(P) * D, along = std::int64_t(Hkv) * D;
      p.k = {k, r.fp8 ? type8 : type16, std::int64_t(P) * Hkv * D, hnd ? D : along,
             hnd ? across : D};
      p.v = p.k;
      p.v.data = v;
      p.pages.entries = {up(table), 1, false};
      p.pages.row_stride = width;
      p.pages.width = width;
      p.pages.num_pages = pages * instances;
      p.seq_lens = {lens, 1, false};
      p.cu_seqlens_q = {cus, 1, false};
      p.softmax_scale = 1.0f / std::sqrt(float(D));
      if (r.fp8 && type8 == DType::kInt8) p.k_scale.value = p.v_scale.value = 0.03f;
      p.stream = stream;
      problems.push_back(p);
    }
    const std::size_t half = std::size_t(pages) * page_bytes;
    float ceiling = 1e9f;
    for (int blocks : {1, 2, 4}) {
      ceiling = std::min(ceiling,
                         time_us(
                             [&](int i) {
                               read_all<<<device.sm_count * blocks, 512, 0, stream>>>(
                                   reinterpret_cast<const uint4*>(static_cast<char*>(k) + i * half),
                                   reinterpret_cast<const uint4*>(static_cast<char*>(v) + i * half),
                                   half / 16, sink);
                             },
                             instances));
    }
    const float ours =
        time_us([&](int i) { cuda::launch_decode(problems[i], workspace, workspace_size, device); },
                instances);
    check(cudaGetLastError());
    float generic = 0.0f;
    if (beside) {
      setenv("PAGEDECODE_KERNEL", "mma", 1);
      generic = time_us(
          [&](int i) { cuda::launch_decode(problems[i], workspace, workspace_size, device); },
          instances);
      unsetenv("PAGEDECODE_KERNEL");
    }
    const Explanation e = cuda::explain_decode(problems[0], device);
    // The peers' times are of the table's shape alone.
    const bool table = Hq == 64 && Hkv == 8 && D == 128 && P == 64 && !hnd;
    std::printf("%-5s %3d %3d %6d%s %6.0f %8.1f %8.1f %6.3f %6.2f %6.2f %8.1f  %s\n",
                name_of(r.fp8 ? type8 : type16), r.q, r.batch, r.n, r.skewed ? "s" : " ",
                bytes / 1e6, ceiling, ours, ours / ceiling, table ? ours / r.best : 0.0,
                table ? ours / r.fa2 : 0.0, generic, e.kernel.c_str());
    std::fflush(stdout);
    geo += std::log(ours / ceiling);
    ++count;
    for (void* d : owned) cudaFree(d);
  }
  std::printf("geometric mean over the ceiling %.3f\n", std::exp(geo / count));
  return 0;
}
