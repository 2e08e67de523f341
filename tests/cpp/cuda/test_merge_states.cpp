// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <memory>

#include "cuda/gpu.h"
#include "pagedecode/cache_ops.h"

namespace pagedecode {
namespace {

using test::Twin;
class CudaMerge : public test::GpuTest {
 protected:
  std::mt19937_64 rng_{5};
};

constexpr float kInf = std::numeric_limits<float>::infinity();

struct States {
  std::vector<std::unique_ptr<Twin>> outs, lses;
  std::int64_t rows, heads, dim;

  States(std::int64_t rows, std::int64_t heads, std::int64_t dim)
      : rows(rows), heads(heads), dim(dim) {}

  void add(std::mt19937_64& rng, DType dtype = DType::kFloat32) {
    outs.push_back(std::make_unique<Twin>(dtype, std::vector<std::int64_t>{rows, heads, dim}));
    lses.push_back(std::make_unique<Twin>(DType::kFloat32, std::vector<std::int64_t>{rows, heads}));
    std::uniform_real_distribution<float> number(-3, 3);
    outs.back()->randomise(rng);
    if (dtype == DType::kFloat32) {
      for (std::int64_t i = 0; i < rows * heads * dim; ++i) {
        outs.back()->host<float>()[i] = number(rng);
      }
    }
    for (std::int64_t i = 0; i < rows * heads; ++i) {
      lses.back()->host<float>()[i] = rng() % 4 == 0 ? -kInf : number(rng);
    }
    outs.back()->upload(), lses.back()->upload();
  }

  MergeArgs args(bool gpu, Twin& out, Twin& lse, LseBase base = LseBase::kE) {
    MergeArgs a;
    for (const auto& x : outs) a.outs.push_back(gpu ? x->gpu() : x->cpu());
    for (const auto& x : lses) a.lses.push_back(gpu ? x->gpu() : x->cpu());
    a.out = gpu ? out.gpu() : out.cpu();
    a.lse = gpu ? lse.gpu() : lse.cpu();
    a.lse_base = base;
    return a;
  }
};

void expect_near(const Twin& gpu, Twin& cpu, std::size_t count, float tolerance) {
  const std::vector<float> got = gpu.downloaded<float>();
  for (std::size_t i = 0; i < count; ++i) {
    const float want = cpu.host<float>()[i];
    if (std::isinf(want) || std::isnan(want)) {
      ASSERT_EQ(std::isnan(want), std::isnan(got[i])) << i;
      if (std::isinf(want)) {
        ASSERT_EQ(want, got[i]) << i;
      }
    } else {
      ASSERT_NEAR(want, got[i], tolerance) << i;
    }
  }
}

// The first bytes on the GPU.
std::vector<std::uint8_t> head(const Twin& twin, std::size_t bytes) {
  std::vector<std::uint8_t> copy = twin.download();
  copy.resize(bytes);
  return copy;
}

TEST_F(CudaMerge, LikeTheCpu) {
  for (const int count : {1, 2, 3, 48, 49, 97, 200}) {
    for (const int dim : {8, 40, 256, 13}) {
      for (const LseBase base : {LseBase::kE, LseBase::k2}) {
        SCOPED_TRACE(std::to_string(count) + " states, D " + std::to_string(dim));
        States states(7, 3, dim);
        for (int s = 0; s < count; ++s) states.add(rng_);
        Twin out(DType::kFloat32, {7, 3, dim}), lse(DType::kFloat32, {7, 3});
        merge_states(states.args(false, out, lse, base));
        merge_states(states.args(true, out, lse, base));
        expect_near(out, out, static_cast<std::size_t>(21 * dim), 2e-5f);
        expect_near(lse, lse, 21, 2e-5f);
      }
    }
  }
}

TEST_F(CudaMerge, OneStateAmongEmptyOnesPassesBitForBit) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    for (const int count : {2, 5, 100}) {
      for (const int full : {0, 1, count - 1}) {
        SCOPED_TRACE(std::string(name_of(dtype)) + ", state " + std::to_string(full));
        States states(4, 2, 24);
        for (int s = 0; s < count; ++s) {
          states.add(rng_, dtype);
          for (int i = 0; i < 8; ++i) {
            states.lses[s]->host<float>()[i] = s == full ? 1e-3f * static_cast<float>(i) : -kInf;
          }
          states.lses[s]->host<float>()[1] = s == full ? -0.0f : -kInf;
          if (s != full) {  // never read
            std::memset(states.outs[s]->host<char>(), 0xff, states.outs[s]->bytes());
          } else {
            std::memset(states.outs[s]->host<char>(), 0, 8);  // +0, then -0
            states.outs[s]->host<std::uint8_t>()[2 * size_of(dtype) - 1] = 0x80;
            if (count < 48) {  // a NaN with a payload; longer lists keep NaN, not its payload
              std::memset(states.outs[s]->host<std::uint8_t>() + 32, 0xfd, 8);
            }
          }
          states.outs[s]->upload(), states.lses[s]->upload();
        }
        Twin out(dtype, {4, 2, 24}), lse(DType::kFloat32, {4, 2});
        merge_states(states.args(true, out, lse));
        const std::size_t bytes = static_cast<std::size_t>(4 * 2 * 24 * size_of(dtype));
        const auto want = head(*states.outs[full], bytes);
        const auto want_lse = head(*states.lses[full], 32);
        EXPECT_EQ(head(out, bytes), want);
        EXPECT_EQ(head(lse, 32), want_lse);
        // In place, over the full one and over an empty one.
        for (const int over : {full, (full + 1) % count}) {
          merge_states(states.args(true, *states.outs[over], *states.lses[over]));
          EXPECT_EQ(head(*states.outs[over], bytes), want);
          EXPECT_EQ(head(*states.lses[over], 32), want_lse);
          states.outs[over]->upload(), states.lses[over]->upload();
        }
      }
    }
  }
}

TEST_F(CudaMerge, EmptyStatesGiveAnEmptyOne) {
  States states(3, 2, 16);
  for (int s = 0; s < 60; ++s) {
    states.add(rng_);
    for (int i = 0; i < 6; ++i) states.lses[s]->host<float>()[i] = -kInf;
    for (int i = 0; i < 96; ++i) states.outs[s]->host<float>()[i] = NAN;
    states.outs[s]->upload(), states.lses[s]->upload();
  }
  Twin out(DType::kFloat32, {3, 2, 16}), lse(DType::kFloat32, {3, 2});
  merge_states(states.args(true, out, lse));
  for (int i = 0; i < 96; ++i) EXPECT_EQ(out.downloaded<float>()[i], 0.0f);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(lse.downloaded<float>()[i], -kInf);
}

TEST_F(CudaMerge, VeryNegativeLses) {
  States states(1, 1, 8);
  states.add(rng_), states.add(rng_);
  for (int s = 0; s < 2; ++s) {
    states.lses[s]->set<float>({-3e38f});
    states.outs[s]->set(std::vector<float>(8, static_cast<float>(s)));
  }
  Twin out(DType::kFloat32, {1, 1, 8}), lse(DType::kFloat32, {1, 1});
  merge_states(states.args(true, out, lse));
  EXPECT_EQ(out.downloaded<float>()[3], 0.5f);
  EXPECT_EQ(lse.downloaded<float>()[0], -3e38f);
}

TEST_F(CudaMerge, NaNRowsStayNaN) {
  States states(1, 2, 8);
  states.add(rng_), states.add(rng_);
  states.lses[0]->set<float>({NAN, 1.0f});
  states.lses[1]->set<float>({2.0f, 1.0f});
  Twin out(DType::kFloat32, {1, 2, 8}), lse(DType::kFloat32, {1, 2});
  merge_states(states.args(true, out, lse));
  EXPECT_TRUE(std::isnan(out.downloaded<float>()[0]));
  EXPECT_TRUE(std::isnan(lse.downloaded<float>()[0]));
  EXPECT_FALSE(std::isnan(out.downloaded<float>()[8]));
}

TEST_F(CudaMerge, StridedInEveryDimension) {
  Twin a(DType::kFloat16, {5, 2, 16}, {200, 1, 2}), b(DType::kFloat32, {5, 2, 16}, {16, 80, 1});
  Twin a_lse(DType::kFloat32, {5, 2}, {1, 5}), b_lse(DType::kFloat32, {5, 2}, {7, 3});
  Twin out(DType::kFloat32, {5, 2, 16}, {1, 5, 10}), lse(DType::kFloat32, {5, 2}, {4, 2});
  for (Twin* t : {&a, &b, &a_lse, &b_lse}) t->randomise(rng_);
  std::uniform_real_distribution<float> number(-2, 2);
  const auto fill = [&](Twin& t, int count) {
    for (int i = 0; i < count; ++i) t.host<float>()[i] = number(rng_);
    t.upload();
  };
  fill(a_lse, 10), fill(b_lse, 32), fill(b, 160);
  for (const bool gpu : {false, true}) {
    const auto pick = [gpu](Twin& t) { return gpu ? t.gpu() : t.cpu(); };
    MergeArgs args;
    args.outs = {pick(a), pick(b)};
    args.lses = {pick(a_lse), pick(b_lse)};
    args.out = pick(out), args.lse = pick(lse);
    merge_states(args);
  }
  const auto got = out.downloaded<float>();
  for (int i = 0; i < 160; ++i) {
    const float want = out.host<float>()[i];
    EXPECT_NEAR(got[i], want, 1e-5f * std::max(1.0f, std::fabs(want))) << i;
  }
}

TEST_F(CudaMerge, SeventyThousandRowsCaptured) {
  constexpr std::int64_t kRows = 70000;
  for (const int count : {2, 60}) {
    const test::Stream stream;
    States states(count == 2 ? kRows : 100, 1, 8);
    for (int s = 0; s < count; ++s) states.add(rng_);
    Twin out(DType::kFloat32, {states.rows, 1, 8}), lse(DType::kFloat32, {states.rows, 1});
    MergeArgs args = states.args(true, out, lse);
    args.stream = stream;
    test::Graph graph(stream, [&] { merge_states(args); });
    for (int s = 0; s < count; ++s) states.outs[s]->set(std::vector<float>(8, 0.25f));
    graph.replay(stream);
    merge_states(states.args(false, out, lse));
    expect_near(out, out, static_cast<std::size_t>(states.rows) * 8, 2e-5f);
  }
}

}  // namespace
}  // namespace pagedecode
