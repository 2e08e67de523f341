// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// append on the GPU against append on the CPU, byte by byte.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "cuda/gpu.h"
#include "pagedecode/cache_ops.h"

namespace pagedecode {
namespace {

using test::Twin;
class CudaAppend : public test::GpuTest {
 protected:
  std::mt19937_64 rng_{7};

  std::vector<std::int64_t> some_slots(std::int64_t pool, std::int64_t count) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(pool));
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), rng_);
    all.resize(static_cast<std::size_t>(count));
    return all;
  }
};

struct Arrays {
  Twin &k, &v, &k_cache, &v_cache, &slots;
  KVLayout layout = KVLayout::kNHD;
  Twin* k_scale = nullptr;
  double scale = 1.0;

  AppendArgs args(bool gpu, cudaStream_t stream = nullptr) const {
    AppendArgs a;
    const auto pick = [gpu](Twin& t) { return gpu ? t.gpu() : t.cpu(); };
    a.k = pick(k), a.v = pick(v), a.k_cache = pick(k_cache), a.v_cache = pick(v_cache);
    a.slots = pick(slots);
    a.kv_layout = layout;
    if (k_scale != nullptr) a.k_scale.array = pick(*k_scale);
    a.v_scale.value = scale;
    a.stream = stream;
    return a;
  }
  void expect_same() const {
    append(args(false));
    append(args(true));
    test::must(cudaDeviceSynchronize());
    EXPECT_TRUE(k_cache.same());
    EXPECT_TRUE(v_cache.same());
  }
};

TEST_F(CudaAppend, EveryPairOfTypes) {
  for (const DType from : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    for (const DType to : {DType::kFloat16, DType::kBFloat16, DType::kFloat8E4M3,
                           DType::kFloat8E5M2, DType::kInt8}) {
      for (const double scale : {1.0, 0.37, 1000.0}) {
        SCOPED_TRACE(std::string(name_of(from)) + " to " + name_of(to));
        Twin k(from, {33, 3, 40}), v(from, {33, 3, 40});
        Twin k_cache(to, {9, 4, 3, 40}), v_cache(to, {9, 3, 4, 40});
        Twin slots(DType::kInt64, {33}), scales(DType::kFloat32, {3});
        k.randomise(rng_), v.randomise(rng_);
        v_cache.randomise(rng_);
        scales.set<float>({0.5f, 3.0f, 0.013f});
        std::vector<std::int64_t> s = some_slots(36, 33);
        s[4] = -1, s[20] = INT64_MIN;
        slots.set(s);
        // K as NHD with an array of scales, V as a view of the same shape.
        Twin v_nhd(to, {9, 4, 3, 40});
        Arrays{k, v, k_cache, v_nhd, slots, KVLayout::kNHD, &scales, scale}.expect_same();
        Twin k_hnd(to, {9, 3, 4, 40});
        Arrays{k, v, k_hnd, v_cache, slots, KVLayout::kHND, &scales, scale}.expect_same();
      }
    }
  }
}

TEST_F(CudaAppend, SaturatesAndKeepsNaN) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x = {449, -449, 1e9f, -inf, inf, 464, 0.5f, 2.5f};
  const std::vector<float> odd = {nan, -nan, 57345, 65536, -1e9f, 127.5f, -128, 126.5f};
  for (const DType to : {DType::kFloat8E4M3, DType::kFloat8E5M2, DType::kInt8}) {
    SCOPED_TRACE(name_of(to));
    Twin k(DType::kFloat32, {1, 1, 8}), v(DType::kFloat32, {1, 1, 8});
    Twin k_cache(to, {1, 1, 1, 8}), v_cache(to, {1, 1, 1, 8}), slots(DType::kInt32, {1});
    k.set(x), v.set(odd), slots.set<std::int32_t>({0});
    Arrays arrays{k, v, k_cache, v_cache, slots};
    append(arrays.args(false));
    append(arrays.args(true));
    EXPECT_TRUE(k_cache.same());
    const auto gpu = v_cache.downloaded<std::uint8_t>();
    for (int i = 0; i < 8; ++i) {
      if (i < 2 && to != DType::kInt8) {
        EXPECT_GT(gpu[i] & 0x7f, to == DType::kFloat8E4M3 ? 0x7e : 0x7c) << "NaN";
      } else {
        EXPECT_EQ(gpu[i], v_cache.host<std::uint8_t>()[i]) << i;
      }
    }
  }
}

TEST_F(CudaAppend, GapsBetweenRows) {
  Twin k(DType::kBFloat16, {10, 2, 64}, {512, 136, 1}, 8);
  Twin v(DType::kBFloat16, {10, 2, 64}, {64, 640, 1});
  Twin k_cache(DType::kFloat8E4M3, {5, 4, 2, 64}, {1000 * 16, 208, 80, 1}, 16);
  Twin v_cache(DType::kFloat8E4M3, {5, 4, 2, 64}, {64, 64 * 5, 64 * 20, 1});
  Twin slots(DType::kInt32, {10}, {3}, 1);
  k.randomise(rng_), v.randomise(rng_);
  const auto s = some_slots(20, 10);
  for (int i = 0; i < 10; ++i) slots.host<std::int32_t>()[3 * i] = static_cast<std::int32_t>(s[i]);
  slots.upload();
  Arrays{k, v, k_cache, v_cache, slots}.expect_same();
}

TEST_F(CudaAppend, HeadDimsOfEightTimesAnything) {
  for (const int d : {8, 24, 72, 136, 256}) {
    for (const DType to : {DType::kFloat16, DType::kInt8}) {
      Twin k(DType::kFloat16, {5, 1, d}), v(DType::kFloat16, {5, 1, d});
      Twin k_cache(to, {7, 1, 1, d}), v_cache(to, {7, 1, 1, d}), slots(DType::kInt32, {5});
      k.randomise(rng_), v.randomise(rng_);
      slots.set<std::int32_t>({6, 0, 3, -5, 2});
      Arrays{k, v, k_cache, v_cache, slots}.expect_same();
    }
  }
}

TEST_F(CudaAppend, SlotsPastThePoolAreSkipped) {
  Twin k(DType::kFloat16, {3, 1, 8}), v(DType::kFloat16, {3, 1, 8});
  Twin k_cache(DType::kFloat16, {2, 2, 1, 8}), v_cache(DType::kFloat16, {2, 2, 1, 8});
  Twin slots(DType::kInt64, {3});
  k.randomise(rng_), v.randomise(rng_);
  slots.set<std::int64_t>({4, INT64_MAX, std::int64_t{1} << 32});
  append(Arrays{k, v, k_cache, v_cache, slots}.args(true));
  EXPECT_TRUE(k_cache.same());
  EXPECT_TRUE(v_cache.same());
}

// Of equal slots one token wins, with all of its K and V.
void expect_one_winner(std::mt19937_64& rng, std::int64_t tokens, std::int64_t pool) {
  Twin k(DType::kFloat32, {tokens, 2, 256}), v(DType::kFloat32, {tokens, 2, 256});
  Twin k_cache(DType::kFloat16, {pool, 1, 2, 256}), v_cache(DType::kFloat16, {pool, 1, 2, 256});
  Twin slots(DType::kInt64, {tokens});
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::fill_n(k.host<float>() + t * 512, 512, static_cast<float>(t % 2048));
    std::fill_n(v.host<float>() + t * 512, 512, static_cast<float>(t % 2048));
    slots.host<std::int64_t>()[t] = static_cast<std::int64_t>(rng() % pool);
  }
  k.upload(), v.upload(), slots.upload();
  append(Arrays{k, v, k_cache, v_cache, slots}.args(true));
  const auto got_k = k_cache.downloaded<std::uint16_t>();
  const auto got_v = v_cache.downloaded<std::uint16_t>();
  for (std::int64_t slot = 0; slot < pool; ++slot) {
    for (int i = 0; i < 512; ++i) {
      ASSERT_EQ(got_k[slot * 512 + i], got_k[slot * 512]);
      ASSERT_EQ(got_v[slot * 512 + i], got_k[slot * 512]);
    }
  }
}

TEST_F(CudaAppend, EqualSlotsFewTokens) { expect_one_winner(rng_, 600, 20); }
TEST_F(CudaAppend, EqualSlotsManyTokens) { expect_one_winner(rng_, 5000, 200); }

TEST_F(CudaAppend, SeventyThousandTokens) {
  Twin k(DType::kFloat16, {70000, 1, 16}), v(DType::kFloat16, {70000, 1, 16});
  Twin k_cache(DType::kFloat16, {70001, 1, 1, 16}), v_cache(DType::kFloat16, {70001, 1, 1, 16});
  Twin slots(DType::kInt64, {70000});
  k.randomise(rng_), v.randomise(rng_);
  slots.set(some_slots(70001, 70000));
  Arrays{k, v, k_cache, v_cache, slots}.expect_same();
}

TEST_F(CudaAppend, NothingToDo) {
  Twin k(DType::kFloat16, {0, 1, 8}), v(DType::kFloat16, {0, 1, 8});
  Twin k_cache(DType::kFloat16, {2, 2, 1, 8}), v_cache(DType::kFloat16, {2, 2, 1, 8});
  Twin slots(DType::kInt32, {0});
  Arrays{k, v, k_cache, v_cache, slots}.expect_same();
}

TEST_F(CudaAppend, CapturedAsTheFirstCallOfAStream) {
  for (const std::int64_t tokens : {5, 3000}) {
    const test::Stream stream;
    Twin k(DType::kFloat16, {tokens, 2, 64}), v(DType::kFloat16, {tokens, 2, 64});
    Twin k_cache(DType::kFloat8E4M3, {3001, 1, 2, 64}), v_cache(DType::kInt8, {3001, 1, 2, 64});
    Twin slots(DType::kInt64, {tokens});
    const Arrays arrays{k, v, k_cache, v_cache, slots};
    test::Graph graph(stream, [&] { append(arrays.args(true, stream)); });
    for (int replay = 0; replay < 3; ++replay) {
      k.randomise(rng_), v.randomise(rng_), slots.set(some_slots(3001, tokens));
      graph.replay(stream);
      append(arrays.args(false));
      EXPECT_TRUE(k_cache.same());
      EXPECT_TRUE(v_cache.same());
    }
  }
}

}  // namespace
}  // namespace pagedecode
