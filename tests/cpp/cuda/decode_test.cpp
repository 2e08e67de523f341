// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The decode kernel against float64, over types, shapes, layouts, masks and options.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda/decode/launch.h"
#include "cuda/decode_case.h"
#include "cuda/decode_wgmma/launch.h"
#include "cuda/variants.h"
#include "environment.h"

namespace pagedecode::test {
namespace {

class Decode : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!have_gpu()) GTEST_SKIP() << "no GPU";
  }
};

// PAGEDECODE_TEST_KERNEL: only calls whose kernel's name begins so.
bool wanted(const std::string& kernel) {
  const char* only = std::getenv("PAGEDECODE_TEST_KERNEL");
  return only == nullptr || kernel.rfind(only, 0) == 0;
}

// Runs, compares, runs again and wants the same bits.
void expect_right(const CaseSpec& spec) {
  SCOPED_TRACE(spec.name);
  DecodeCase c(spec);
  const std::string kernel = cuda::explain_decode(c.problem, device_info()).kernel;
  if (!wanted(kernel)) return;
  const CaseResult r = c.run();
  const std::string difference = c.compare(r);
  EXPECT_EQ(difference, "") << kernel;
  EXPECT_EQ(c.run().out, r.out) << kernel << ": not repeatable";
  if (std::getenv("PAGEDECODE_TEST_VERBOSE")) {
    std::printf("%-40s %-24s error %.2e relative %.2e %s\n", spec.name.c_str(), kernel.c_str(),
                c.error, c.relative_error, difference.c_str());
  }
}

const std::vector<int> kM = {1, 3, 0, 2, 4, 1};
const std::vector<int> kN = {1, 200, 64, 0, 3, 1000};

CaseSpec base(const std::string& name) {
  CaseSpec s;
  s.name = name;
  s.m = kM;
  s.n = kN;
  return s;
}

TEST_F(Decode, HeadDimsTypesAndRows) {
  for (int d : {64, 128, 256, 8, 72, 80, 96, 120, 192}) {
    for (int rows : {1, 5, 11}) {
      for (DType k : {DType::kBFloat16, DType::kFloat16, DType::kFloat8E4M3, DType::kFloat8E5M2,
                      DType::kInt8}) {
        CaseSpec s =
            base("d" + std::to_string(d) + " rows " + std::to_string(rows) + " " + name_of(k));
        s.head_dim = d;
        s.q = k == DType::kFloat16 ? DType::kFloat16 : DType::kBFloat16;
        s.k = s.v = k;
        s.m = {rows, 1, 0, rows, rows, 2};
        s.n = {rows, 333, 64, 0, std::max(rows - 2, 0), 1000};
        expect_right(s);
      }
    }
  }
}

TEST_F(Decode, MixedTypes) {
  const DType types[] = {DType::kFloat16, DType::kFloat8E4M3, DType::kFloat8E5M2, DType::kInt8};
  for (DType q : {DType::kFloat16, DType::kBFloat16}) {
    for (DType k : types) {
      for (DType v : types) {
        CaseSpec s = base(std::string(name_of(q)) + " " + name_of(k) + " " + name_of(v));
        s.q = q;
        s.k = k == DType::kFloat16 ? q : k;
        s.v = v == DType::kFloat16 ? q : v;
        s.scales = true;
        expect_right(s);
      }
    }
  }
}

TEST_F(Decode, Groups) {
  for (int group : {1, 2, 3, 5, 7, 8, 12, 16, 17, 64, 128}) {
    for (bool bytes : {false, true}) {
      CaseSpec s = base("group " + std::to_string(group));
      s.num_kv_heads = group > 16 ? 2 : 3;
      s.num_q_heads = s.num_kv_heads * group;
      if (bytes) s.k = s.v = DType::kFloat8E4M3;
      expect_right(s);
    }
  }
}

TEST_F(Decode, PagesAndLayouts) {
  for (int page : {1, 2, 3, 4, 8, 16, 17, 24, 40, 64, 128, 1024}) {
    for (int form = 0; form < 4; ++form) {
      CaseSpec s = base("page " + std::to_string(page) + " form " + std::to_string(form));
      s.page_size = page;
      s.hnd = form & 1;
      s.csr = form & 2;
      s.wide = form == 1 || form == 2;
      s.n = {page, 2 * page + 1, page - 1, 0, page + 1, 777};
      s.m = {1, 2, 1, 1, 2, 5};
      if (form == 3) s.k = s.v = DType::kInt8;
      expect_right(s);
    }
  }
}

// Every head dim and type with pages that divide a tile in each way, few and many rows.
TEST_F(Decode, PagesOfEveryKernel) {
  for (int d : {64, 128, 256}) {
    for (int page : {1, 6, 8, 24, 64}) {
      for (int heads : {2, 4, 32, 128}) {
        for (DType k : {DType::kBFloat16, DType::kFloat16, DType::kFloat8E4M3, DType::kInt8}) {
          CaseSpec s = base("d" + std::to_string(d) + " page " + std::to_string(page) + " heads " +
                            std::to_string(heads) + " " + name_of(k));
          s.head_dim = d;
          s.page_size = page;
          s.num_q_heads = heads;
          s.q = k == DType::kFloat16 ? DType::kFloat16 : DType::kBFloat16;
          s.k = s.v = k;
          s.hnd = heads == 4;
          s.scales = heads == 32;
          s.m = {1, 2, 1, 0, 3};
          s.n = {page, 2 * page + 1, 63, 0, 500};
          expect_right(s);
        }
      }
    }
  }
}

TEST_F(Decode, UniformQ) {
  for (DType out : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    CaseSpec s = base("4-d q");
    s.uniform = true;
    s.m = {4, 4, 4};
    s.n = {4096, 4096, 1};
    s.out = out;
    expect_right(s);
  }
}

std::vector<std::pair<std::string, std::function<void(CaseSpec&)>>> options() {
  return {
      {"plain", [](CaseSpec&) {}},
      {"not causal", [](CaseSpec& s) { s.causal = false; }},
      {"window 0", [](CaseSpec& s) { s.window = 0; }},
      {"window 70", [](CaseSpec& s) { s.window = 70; }},
      {"window 70 tree",
       [](CaseSpec& s) {
         s.window = 70;
         s.positions = true;
       }},
      {"window not causal",
       [](CaseSpec& s) {
         s.window = 5;
         s.causal = false;
       }},
      {"bool mask", [](CaseSpec& s) { s.mask = MaskKind::kBool; }},
      {"packed mask",
       [](CaseSpec& s) {
         s.mask = MaskKind::kPacked;
         s.positions = true;
       }},
      {"mask window",
       [](CaseSpec& s) {
         s.mask = MaskKind::kPacked;
         s.window = 9;
         s.positions = true;
       }},
      {"softcap", [](CaseSpec& s) { s.softcap = 5.0f; }},
      {"alibi", [](CaseSpec& s) { s.alibi = true; }},
      {"alibi tree",
       [](CaseSpec& s) {
         s.alibi = true;
         s.positions = true;
       }},
      {"sinks", [](CaseSpec& s) { s.sinks = true; }},
      {"sinks base 2", [](CaseSpec& s) { s.sinks = s.base2 = true; }},
      {"base 2", [](CaseSpec& s) { s.base2 = true; }},
      {"scales", [](CaseSpec& s) { s.scales = true; }},
      {"negative scale", [](CaseSpec& s) { s.softmax_scale = -0.2f; }},
      {"sharp",
       [](CaseSpec& s) {
         s.k_gain = 12.0f;
         s.softmax_scale = 1.0f;
       }},
      {"max_q unknown", [](CaseSpec& s) { s.max_q_known = false; }},
      {"all",
       [](CaseSpec& s) {
         s.mask = MaskKind::kBool;
         s.positions = s.alibi = s.sinks = s.scales = true;
         s.softcap = 9.0f;
         s.window = 33;
       }},
  };
}

TEST_F(Decode, Options) {
  for (const auto& [name, set] : options()) {
    for (DType k : {DType::kBFloat16, DType::kFloat8E4M3}) {
      for (int heads : {2, 16}) {
        for (int splits : {0, 3}) {
          CaseSpec s = base(name + " " + name_of(k) + " heads " + std::to_string(heads) +
                            " splits " + std::to_string(splits));
          s.k = s.v = k;
          s.num_q_heads = heads;
          s.m = {5, 40, 0, 2, 7, 1};
          s.n = {7, 300, 64, 0, 3, 900};
          s.num_splits = splits;
          set(s);
          if (k == DType::kFloat8E4M3 && s.k_gain > 1.0f) s.k_gain = 8.0f;
          expect_right(s);
        }
      }
    }
  }
}

// Options on other head dims and small pages, which have kernels of their own.
TEST_F(Decode, OptionsOfEveryKernel) {
  const std::pair<int, int> shapes[] = {{64, 16}, {256, 16}, {64, 1}, {128, 1}, {256, 1}};
  for (const auto& [name, set] : options()) {
    for (const auto& [d, page] : shapes) {
      for (DType k : {DType::kBFloat16, DType::kFloat8E4M3}) {
        CaseSpec s = base(name + " d" + std::to_string(d) + " page " + std::to_string(page) + " " +
                          name_of(k));
        s.head_dim = d;
        s.page_size = page;
        s.k = s.v = k;
        s.num_q_heads = page == 1 ? 4 : 16;
        s.m = {5, 9, 0, 2, 7, 1};
        s.n = {7, 300, 64, 0, 3, 900};
        set(s);
        if (s.k_gain > 1.0f) s.k_gain = d == 256 ? 4.0f : 8.0f;
        expect_right(s);
      }
    }
  }
}

TEST_F(Decode, Rope) {
  for (bool interleaved : {false, true}) {
    for (DType k : {DType::kFloat16, DType::kFloat8E4M3}) {
      CaseSpec s = base("rope");
      s.q = DType::kFloat16;
      s.k = s.v = k;
      s.rope = true;
      s.rope_interleaved = interleaved;
      expect_right(s);
      s.head_dim = 72;
      s.positions = true;
      expect_right(s);
    }
  }
}

TEST_F(Decode, ManySequences) {
  CaseSpec s = base("many");
  s.m.assign(1500, 1);
  s.n.clear();
  for (int b = 0; b < 1500; ++b) s.n.push_back(b % 7 == 0 ? 0 : b * 37 % 150);
  for (int b = 0; b < 1500; b += 5) s.m[b] = b % 3;
  s.num_q_heads = 4;
  expect_right(s);
  s.batch_invariant = true;
  expect_right(s);
}

TEST_F(Decode, BeyondGridLimits) {
  CaseSpec s = base("65537 sequences");
  s.m.assign(65537, 1);
  s.n.assign(65537, 1);
  s.n[65536] = 40;
  s.head_dim = 8;
  s.num_q_heads = s.num_kv_heads = 1;
  expect_right(s);
}

TEST_F(Decode, LongSplitSequences) {
  for (int splits : {0, 1, 2, 7, 1000}) {
    for (DType k : {DType::kBFloat16, DType::kFloat8E4M3}) {
      for (int rows : {1, 4, 8}) {
        CaseSpec s = base("long, splits " + std::to_string(splits));
        s.num_q_heads = 16;
        s.k = s.v = k;
        s.m = {rows, 1};
        s.n = {5000, 20};
        s.num_splits = splits;
        expect_right(s);
      }
    }
  }
}

// Splits before the window's start are empty, and blocks walk several items of them.
TEST_F(Decode, EmptySplits) {
  for (int page : {1, 16}) {
    for (int sequences : {3, 200}) {
      CaseSpec s = base("empty splits, page " + std::to_string(page));
      s.m.assign(sequences, 2);
      s.n.clear();
      for (int b = 0; b < sequences; ++b) s.n.push_back(4200 + b);
      s.head_dim = 64;
      s.num_q_heads = 2;
      s.page_size = page;
      s.window = 50;
      s.batch_invariant = true;
      expect_right(s);
    }
  }
}

TEST_F(Decode, ManyHeads) {
  for (int heads : {5, 7, 33, 300}) {
    CaseSpec s = base(std::to_string(heads) + " heads");
    s.num_q_heads = s.num_kv_heads = heads;
    s.head_dim = 64;
    expect_right(s);
  }
}

// Bits of a row: alone, beside other sequences, as one of k + 1 verified tokens.
TEST_F(Decode, BatchInvariant) {
  struct Shape {
    int head_dim, page_size, group, n;
    std::vector<int> windows;
  };
  const Shape shapes[] = {
      {128, 16, 4, 9001, {-1, 100}}, {128, 16, 20, 9001, {-1, 100}}, {128, 16, 1, 4500, {-1}},
      {128, 16, 8, 4500, {-1}},      {128, 16, 33, 4500, {-1}},      {128, 1, 4, 4500, {-1}},
      {64, 1, 4, 4500, {100}},       {64, 64, 4, 4500, {-1}},        {64, 64, 17, 4500, {-1}},
      {80, 16, 4, 4500, {-1}},       {256, 1, 4, 4500, {100}},       {256, 64, 4, 4500, {-1}},
      {256, 64, 17, 4500, {-1}},     {128, 16, 100, 4500, {100}},    {64, 16, 40, 4500, {-1}},
      {256, 16, 100, 4500, {-1}},    {128, 64, 4, 9001, {-1, 100}},  {128, 64, 20, 4500, {-1}},
      {128, 64, 33, 4500, {100}},
  };
  for (DType k : {DType::kBFloat16, DType::kFloat8E4M3}) {
    for (const Shape& shape : shapes) {
      for (int window : shape.windows) {
        CaseSpec many = base(
            std::string("verify ") + name_of(k) + " d" + std::to_string(shape.head_dim) + " page " +
            std::to_string(shape.page_size) + " group " + std::to_string(shape.group));
        SCOPED_TRACE(many.name);
        many.k = many.v = k;
        many.head_dim = shape.head_dim;
        many.page_size = shape.page_size;
        many.num_q_heads = 2 * shape.group;
        many.batch_invariant = true;
        many.window = window;
        many.m = {5};
        many.n = {shape.n};
        DecodeCase verify(many);
        const CaseResult r = verify.run();
        EXPECT_EQ(verify.compare(r), "");
        // The same cache, one row: seq_lens and Q of row i.
        DecodeCase step(many);
        const DecodeProblem whole = step.problem;
        for (int i = 0; i < 5; ++i) {
          // Shorten on the device: n - 4 + i keys, m = 1, from row i of q on.
          const std::int32_t cu[2] = {0, 1};
          step.problem = whole;
          step.set_single_row(i, shape.n - 4 + i, cu);
          EXPECT_EQ(step.row_bits_at(step.run(), 0), verify.row_bits(r, 0, i)) << "row " << i;
        }
        for (int copies : {1, 40}) {
          CaseSpec c = many;
          for (int x = 0; x < copies; ++x) {
            c.m.push_back(2);
            c.n.push_back(150);
          }
          DecodeCase beside(c);
          beside.copy_sequence_from(verify);
          const CaseResult b = beside.run();
          for (int i = 0; i < 5; ++i) {
            EXPECT_EQ(beside.row_bits(b, 0, i), verify.row_bits(r, 0, i)) << copies;
          }
        }
      }
    }
  }
}

// A page id out of range: NaN for the rows that see it, and for no other.
TEST_F(Decode, BadPage) {
  const std::pair<int, int> shapes[] = {{128, 16}, {128, 8}, {128, 1}, {64, 24}, {256, 8}};
  for (DType k : {DType::kBFloat16, DType::kInt8}) {
    for (const auto& [d, page] : shapes) {
      CaseSpec s = base("bad page");
      SCOPED_TRACE(std::string(name_of(k)) + " d" + std::to_string(d) + " page " +
                   std::to_string(page));
      s.k = s.v = k;
      s.head_dim = d;
      s.page_size = page;
      s.m = {2, 3};
      s.n = {100, 200};
      DecodeCase c(s);
      const CaseResult good = c.run();
      c.break_page(1, 150);
      const CaseResult bad = c.run();
      for (int i = 0; i < 2; ++i) EXPECT_EQ(c.row_bits(bad, 0, i), c.row_bits(good, 0, i));
      EXPECT_TRUE(c.all_nan(bad, 1));
    }
  }
}

TEST_F(Decode, HiddenNaN) {
  for (DType k : {DType::kBFloat16, DType::kFloat16, DType::kFloat8E4M3, DType::kFloat8E5M2}) {
    for (const auto& [heads, d, page] :
         {std::tuple{2, 128, 16}, std::tuple{8, 128, 16}, std::tuple{32, 128, 16},
          std::tuple{64, 128, 16}, std::tuple{8, 64, 16}, std::tuple{64, 64, 16},
          std::tuple{8, 256, 16}, std::tuple{64, 256, 16}, std::tuple{8, 128, 1},
          std::tuple{2, 128, 64}, std::tuple{8, 128, 64}, std::tuple{32, 128, 64}}) {
      CaseSpec s = base("hidden NaN d" + std::to_string(d) + " page " + std::to_string(page));
      s.q = k == DType::kFloat16 ? DType::kFloat16 : DType::kBFloat16;
      s.k = s.v = k;
      s.num_q_heads = heads;
      s.head_dim = d;
      s.page_size = page;
      s.m = {4, 3, 2};
      s.n = {200, 100, 70};
      s.window = 50;
      s.poison_hidden = true;
      expect_right(s);
    }
  }
}

// Every compiled kernel, on short sequences: the list for compute-sanitizer, whose tools slow a
// kernel down by a factor of 100 or so (CONTRIBUTING.md).
TEST_F(Decode, EveryKernelOnce) {
  const EnvironmentVariable forced("PAGEDECODE_KERNEL");
  std::set<std::string> missing, met;
  for (const cuda::Variant& v : cuda::kVariants) missing.insert(std::string("mma_") + v.name);
  if (cuda::wgmma_is_built() && device_info().cc_major == 9) {
    for (const cuda::WgmmaVariant& v : cuda::kWgmmaVariants) {
      missing.insert(std::string("wgmma_") + v.name);
    }
  }
  const DType caches[] = {DType::kBFloat16, DType::kFloat8E4M3, DType::kInt8, DType::kFloat32};
  for (const char* kernel : {"", "mma"}) {
    forced.set(kernel);
    for (DType q : {DType::kBFloat16, DType::kFloat16}) {
      for (DType cache : caches) {
        if (q == DType::kFloat16 && size_of(cache) == 1) continue;  // the same as with bfloat16
        for (int d : {64, 128, 256}) {
          for (int rows : {1, 3, 5, 12, 30}) {
            for (int form = 0; form < 12; ++form) {
              // Pages of 1: wgmma's kernels without TMA; of 64: a box or two of a tile.
              if (form >= 4 && *kernel != '\0') continue;
              const bool softcap = form % 2;
              CaseSpec s = base(std::string(kernel) + " d" + std::to_string(d) + " rows " +
                                std::to_string(rows) + " " + name_of(q) + " " + name_of(cache));
              s.head_dim = d;
              s.page_size = form >= 8 ? 64 : form >= 4 ? 1 : 16;
              s.num_q_heads = form % 8 == 0 && rows == 12 ? (form == 0 ? 32 : 12) : 4;
              s.num_kv_heads = 1;
              s.q = q;
              s.k = s.v = cache == DType::kBFloat16 ? q : cache;
              if (cache == DType::kFloat32) s.k = q, s.v = DType::kFloat8E4M3;  // two kinds
              s.softcap = softcap ? 5.0f : 0.0f;
              s.num_splits = form / 2 % 2;        // one: a block walks the ring of its stages round
              s.batch_invariant = form % 8 == 0;  // kernels for few items are not for this
              s.m = {1, 0, rows};
              s.n = {140, 3, 900};
              DecodeCase c(s);
              const std::string name = cuda::explain_decode(c.problem, device_info()).kernel;
              if (!met.insert(name + std::to_string(form)).second) continue;
              missing.erase(name);
              if (!wanted(name)) continue;
              EXPECT_EQ(c.compare(c.run()), "") << name << ", " << s.name;
            }
          }
        }
      }
    }
  }
  for (const std::string& name : missing) ADD_FAILURE() << name << " was not met";
}

}  // namespace
}  // namespace pagedecode::test
