// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// move on the GPU against move on the CPU, byte by byte: chains and cycles need all sources read
// first.
#include <algorithm>
#include <numeric>

#include "cuda/gpu.h"
#include "pagedecode/cache_ops.h"

namespace pagedecode {
namespace {

using test::Twin;
using Int64s = std::vector<std::int64_t>;
class CudaMove : public test::GpuTest {
 protected:
  std::mt19937_64 rng_{11};
};

struct Arrays {
  Twin &k_cache, &v_cache, &src, &dst;
  KVLayout layout = KVLayout::kNHD;

  MoveArgs args(bool gpu, cudaStream_t stream = nullptr) const {
    MoveArgs a;
    const auto pick = [gpu](Twin& t) { return gpu ? t.gpu() : t.cpu(); };
    a.k_cache = pick(k_cache), a.v_cache = pick(v_cache);
    a.src_slots = pick(src), a.dst_slots = pick(dst);
    a.kv_layout = layout;
    a.stream = stream;
    return a;
  }
  void expect_same() const {
    move(args(false));
    move(args(true));
    test::must(cudaDeviceSynchronize());
    EXPECT_TRUE(k_cache.same());
    EXPECT_TRUE(v_cache.same());
  }
};

TEST_F(CudaMove, PermutationOfTheWholePool) {
  for (const DType dtype : {DType::kFloat16, DType::kFloat8E5M2, DType::kInt8, DType::kBFloat16}) {
    for (const int d : {8, 24, 128}) {
      for (const KVLayout layout : {KVLayout::kNHD, KVLayout::kHND}) {
        const std::vector<std::int64_t> shape = layout == KVLayout::kNHD
                                                    ? std::vector<std::int64_t>{50, 4, 3, d}
                                                    : std::vector<std::int64_t>{50, 3, 4, d};
        Twin k(dtype, shape), v(dtype, shape);
        Twin src(DType::kInt64, {200}), dst(DType::kInt32, {200});
        k.randomise(rng_), v.randomise(rng_);
        Int64s from(200);
        std::iota(from.begin(), from.end(), 0);
        std::vector<std::int32_t> to(from.begin(), from.end());
        std::shuffle(from.begin(), from.end(), rng_);
        std::shuffle(to.begin(), to.end(), rng_);
        src.set(from), dst.set(to);
        Arrays{k, v, src, dst, layout}.expect_same();
      }
    }
  }
}

TEST_F(CudaMove, ChainOfNeighboursAndSkips) {
  Twin k(DType::kFloat16, {8, 2, 1, 64}, {1000, 400, 96, 1}), v(DType::kInt8, {8, 2, 1, 64});
  Twin src(DType::kInt32, {6}, {2}), dst(DType::kInt32, {6});
  k.randomise(rng_), v.randomise(rng_);
  src.set<std::int32_t>({0, 0, 1, 0, 2, 0, 3, 0, -1, 0, 5});
  dst.set<std::int32_t>({1, 2, 3, 4, 9, -7});
  Arrays{k, v, src, dst}.expect_same();
}

TEST_F(CudaMove, SlotsPastThePoolAreSkipped) {
  Twin k(DType::kFloat16, {2, 2, 1, 8}), v(DType::kFloat16, {2, 2, 1, 8});
  Twin src(DType::kInt64, {3}), dst(DType::kInt64, {3});
  k.randomise(rng_), v.randomise(rng_);
  src.set<std::int64_t>({4, 0, INT64_MAX});
  dst.set<std::int64_t>({0, 4, INT64_MIN});
  move(Arrays{k, v, src, dst}.args(true));
  EXPECT_TRUE(k.same());
  EXPECT_TRUE(v.same());
}

TEST_F(CudaMove, SeventyThousandPairsCaptured) {
  constexpr std::int64_t kPairs = 70000;
  const test::Stream stream;
  Twin k(DType::kInt8, {kPairs, 1, 1, 16}), v(DType::kInt8, {kPairs, 1, 1, 16});
  Twin src(DType::kInt64, {kPairs}), dst(DType::kInt64, {kPairs});
  const Arrays arrays{k, v, src, dst};
  test::Graph graph(stream, [&] { move(arrays.args(true, stream)); });
  Int64s slots(kPairs);
  std::iota(slots.begin(), slots.end(), 0);
  for (int replay = 0; replay < 2; ++replay) {
    k.randomise(rng_), v.randomise(rng_);
    src.set(slots);
    std::shuffle(slots.begin(), slots.end(), rng_);
    dst.set(slots);
    graph.replay(stream);
    move(arrays.args(false));
    EXPECT_TRUE(k.same());
    EXPECT_TRUE(v.same());
  }
}

}  // namespace
}  // namespace pagedecode
