// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The kernels of every level that this machine has, against the naive loop and against themselves.
#include "cpu/decode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/levels.h"
#include "cpu/paged_call.h"
#include "pagedecode/backends.h"

namespace pagedecode::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr DType kQueryTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
constexpr DType kCacheTypes[] = {DType::kFloat32,    DType::kFloat16,    DType::kBFloat16,
                                 DType::kFloat8E4M3, DType::kFloat8E5M2, DType::kInt8};

class Decode : public ::testing::TestWithParam<const Level*> {
 protected:
  static void run(PagedCall& call) { decode_at(call.p, *GetParam()); }

  static void expect_right(PagedCall& call) {
    run(call);
    const Errors e = errors_of(call);
    const DType out = call.p.out.dtype;
    const double eps = out == DType::kFloat32 ? 1e-5 : out == DType::kFloat16 ? 1e-3 : 4.5e-3;
    EXPECT_LE(e.out, eps);
    EXPECT_LE(e.lse, 1e-4);
  }
};

std::vector<char> bits_of_row(const PagedCall& call, std::int64_t row) {
  const std::int64_t heads = call.p.num_q_heads;
  std::vector<char> bits;
  for (std::int64_t h = 0; h < heads; ++h) {
    const std::vector<float> out = call.out_row(row, h);
    const float lse = call.lse_at(row, h);
    const auto* p = reinterpret_cast<const char*>(out.data());
    bits.insert(bits.end(), p, p + out.size() * sizeof(float));
    bits.insert(bits.end(), reinterpret_cast<const char*>(&lse),
                reinterpret_cast<const char*>(&lse) + sizeof lse);
  }
  return bits;
}

TEST_P(Decode, EveryDType) {
  unsigned seed = 1;
  for (const DType q : kQueryTypes) {
    for (const DType k : kCacheTypes) {
      for (const DType v : kCacheTypes) {
        Shape shape;
        shape.m = {3, 1};
        shape.n = {75, 130};
        shape.head_dim = seed % 2 ? 64 : 40;
        shape.q = q;
        shape.k = k;
        shape.v = v;
        shape.out = kQueryTypes[seed % 3];
        PagedCall call(shape, seed++);
        call.poison_unseen(std::nanf(""));
        SCOPED_TRACE(static_cast<int>(q) * 100 + static_cast<int>(k) * 10 + static_cast<int>(v));
        expect_right(call);
      }
    }
  }
}

TEST_P(Decode, EveryHeadDim) {
  for (int d = 8; d <= 256; d += 8) {
    for (const DType q : {DType::kFloat32, DType::kBFloat16}) {
      Shape shape;
      shape.n = {70};
      shape.head_dim = d;
      shape.q = q;
      shape.k = shape.v = DType::kBFloat16;
      PagedCall call(shape, static_cast<unsigned>(d));
      SCOPED_TRACE(d);
      expect_right(call);
    }
  }
}

TEST_P(Decode, GroupsAndRows) {
  for (const int group : {1, 2, 3, 5, 16, 33, 128}) {
    for (const std::int64_t m : {1, 2, 7}) {
      Shape shape;
      shape.m = {m, 0, m + 1};
      shape.n = {65, 9, m};
      shape.group = group;
      shape.kv_heads = 1;
      shape.head_dim = 32;
      shape.q = shape.k = shape.v = DType::kBFloat16;
      PagedCall call(shape, 5);
      SCOPED_TRACE(group);
      expect_right(call);
    }
  }
}

TEST_P(Decode, LengthsAroundPagesAndTiles) {
  for (const int page : {1, 3, 16, 64, 100}) {
    for (const std::int64_t n : {0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129}) {
      for (const bool hnd : {false, true}) {
        Shape shape;
        shape.m = {2};
        shape.n = {n};
        shape.page_size = page;
        shape.hnd = hnd;
        shape.q = shape.k = shape.v = DType::kBFloat16;
        PagedCall call(shape, 7);
        call.poison_unseen(kInf);
        SCOPED_TRACE(n);
        expect_right(call);
      }
    }
  }
}

TEST_P(Decode, Options) {
  Shape shape;
  shape.m = {4, 2};
  shape.n = {150, 3};
  for (int option = 0; option < 12; ++option) {
    shape.q = shape.k = shape.v = option % 2 ? DType::kBFloat16 : DType::kFloat32;
    PagedCall call(shape, 11);
    DecodeProblem& p = call.p;
    SCOPED_TRACE(option);
    if (option == 0) p.causal = false;
    if (option == 1 || option == 7) p.window_left = 60;
    if (option == 2) p.softcap = 2.0f;
    if (option == 3 || option == 7) {
      call.slopes.assign(8, 0.05f);
      p.alibi_slopes = {call.slopes.data(), 1};
    }
    if (option == 4 || option == 7) {
      call.sinks.assign(8, 1.5f);
      p.sinks = {call.sinks.data(), 1};
    }
    if (option == 5) p.rope.on = true;
    if (option == 6) p.rope.on = p.rope.interleaved = true;
    if (option == 7 || option == 8) {
      call.mask = {1, 0, 0, 0, 0, 1, 0, 0, 1, 0, 1, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 0, 0};
      p.draft_mask = {MaskKind::kBool, call.mask.data(), 4, 1, 4};
      call.positions = {146, 147, 147, 148, 1, 2};
      p.positions = {call.positions.data(), 1, true};
    }
    if (option == 9) p.lse_base2 = true;
    if (option == 10) p.num_splits = 5;
    if (option == 11) p.window_left = 0;
    call.poison_unseen(std::nanf(""));
    expect_right(call);
  }
}

TEST_P(Decode, UnseenBitsChangeNothing) {
  for (const DType type : {DType::kFloat32, DType::kBFloat16, DType::kFloat8E5M2}) {
    Shape shape;
    shape.m = {4};
    shape.n = {70};
    shape.q = DType::kBFloat16;
    shape.k = shape.v = type;
    PagedCall clean(shape, 13);
    run(clean);
    for (const float value : {std::nanf(""), kInf, -kInf, 3e4f}) {
      PagedCall dirty(shape, 13);
      dirty.poison_unseen(value);
      // The last draft key is seen by the last row alone.
      dirty.set_key(false, 0, 69, value);
      dirty.set_key(true, 0, 69, value);
      run(dirty);
      for (std::int64_t row = 0; row < 3; ++row) {
        EXPECT_EQ(bits_of_row(clean, row), bits_of_row(dirty, row)) << row << " " << value;
      }
    }
  }
}

TEST_P(Decode, InfinitiesThatAreSeenArrive) {
  for (const DType type : {DType::kFloat32, DType::kBFloat16, DType::kFloat8E5M2}) {
    Shape shape;
    shape.m = {2};
    shape.n = {66};
    shape.q = DType::kBFloat16;
    shape.k = shape.v = type;
    PagedCall call(shape, 17);
    // (a cache that append wrote holds no float8 infinity, but the type has one: set it by its
    // bits)
    call.set_key(true, 0, 65, 1.0f);
    run(call);
    const std::vector<char> before = bits_of_row(call, 0);
    if (type == DType::kFloat8E5M2) {
      for (char& c : call.v) c = c == 0x3c ? 0x7c : c;
    } else {
      call.set_key(true, 0, 65, kInf);
    }
    run(call);
    for (std::int64_t h = 0; h < 8; ++h) {
      for (const float x : call.out_row(1, h)) EXPECT_EQ(x, kInf);
    }
    if (type != DType::kFloat8E5M2) {
      EXPECT_EQ(before, bits_of_row(call, 0));
    }
  }
}

TEST_P(Decode, ExtremeLogits) {
  for (const DType type : {DType::kFloat32, DType::kBFloat16}) {
    for (const float q : {100.0f, -100.0f}) {
      Shape shape;
      shape.n = {4};
      shape.head_dim = 128;
      shape.q = shape.k = shape.v = type;
      PagedCall call(shape, 19);
      PagedCall constant(shape, 19);
      for (int key = 0; key < 4; ++key) {
        call.set_key(false, 0, key, -20.0f);
        call.set_key(true, 0, key, static_cast<float>(key));
      }
      // q from a key that was set to it.
      constant.set_key(false, 0, 0, q);
      for (std::int64_t h = 0; h < 8; ++h) {
        const char* src = constant.k.data();
        std::memcpy(
            call.q.data() + h * 128 * (type == DType::kFloat32 ? 4 : 2),
            src + constant.table[0] * constant.p.k.page_stride * (type == DType::kFloat32 ? 4 : 2),
            128 * (type == DType::kFloat32 ? 4 : 2));
      }
      run(call);
      for (const float x : call.out_row(0, 0)) EXPECT_EQ(x, 1.5f);
      EXPECT_NEAR(call.lse_at(0, 0), q * -20.0f * 128.0f / std::sqrt(128.0f) + std::log(4.0f),
                  0.01);
    }
  }
}

TEST_P(Decode, BatchInvariant) {
  for (const DType type : {DType::kFloat32, DType::kBFloat16, DType::kFloat8E4M3}) {
    Shape many;
    many.m = {5, 3, 4};
    many.n = {40, 300, 200};
    many.q = type == DType::kFloat32 ? type : DType::kBFloat16;
    many.k = many.v = type;
    PagedCall all(many, 23);
    all.p.batch_invariant = true;
    set_num_threads(3);
    run(all);
    set_num_threads(1);
    // Single steps of the last sequence, alone: the same keys under other lengths.
    for (std::int64_t i = 0; i < 4; ++i) {
      PagedCall one(many, 23);
      DecodeProblem& p = one.p;
      p.batch_invariant = true;
      one.offsets = {0, 0, 8 + i, 9 + i};
      one.lens = {0, 0, 200 - 3 + i};
      p.cu_seqlens_q.data = one.offsets.data();
      p.seq_lens.data = one.lens.data();
      one.offsets[1] = 8 + i;  // (rows before belong to an empty sequence)
      p.max_q = 12;
      run(one);
      EXPECT_EQ(bits_of_row(all, 8 + i), bits_of_row(one, 8 + i)) << i;
    }
  }
  set_num_threads(2);
}

TEST_P(Decode, SplitsAgreeAndRepeat) {
  Shape shape;
  shape.m = {2};
  shape.n = {1000};
  shape.q = shape.k = shape.v = DType::kBFloat16;
  for (const std::int64_t splits : {1, 2, 3, 16, 1000000}) {
    PagedCall a(shape, 29);
    a.p.num_splits = splits;
    expect_right(a);
    PagedCall b(shape, 29);
    b.p.num_splits = splits;
    run(b);
    for (std::int64_t row = 0; row < 2; ++row) EXPECT_EQ(bits_of_row(a, row), bits_of_row(b, row));
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, Decode, ::testing::ValuesIn(levels_that_run()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace pagedecode::cpu
