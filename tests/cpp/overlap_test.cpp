// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "overlap.h"

#include <random>
#include <set>

#include "problems.h"

namespace pagedecode {
namespace {

Tensor view(void* data, std::initializer_list<std::int64_t> shape,
            std::initializer_list<std::int64_t> strides, DType dtype = DType::kFloat32) {
  Tensor t = testing::tensor(data, dtype, shape);
  std::copy(strides.begin(), strides.end(), t.strides);
  return t;
}

// Every byte that a view reaches, with repetition.
std::vector<std::uintptr_t> bytes_of(const Tensor& t) {
  std::vector<std::uintptr_t> bytes;
  const std::int64_t size = size_of(t.dtype);
  for (std::int64_t flat = 0; flat < t.size(); ++flat) {
    std::int64_t rest = flat;
    std::int64_t at = 0;
    for (int i = t.ndim - 1; i >= 0; --i) {
      at += rest % t.shape[i] * t.strides[i];
      rest /= t.shape[i];
    }
    for (std::int64_t b = 0; b < size; ++b) {
      bytes.push_back(reinterpret_cast<std::uintptr_t>(t.data) +
                      static_cast<std::uintptr_t>(at * size + b));
    }
  }
  return bytes;
}

float buffer[1 << 16];

TEST(Overlap, ColumnsOfOneBuffer) {
  // q [10, 4, 64] and out [10, 2, 64] side by side in rows of 6 * 64.
  const Tensor q = view(buffer, {10, 4, 64}, {384, 64, 1});
  EXPECT_EQ(overlap(q, view(buffer + 256, {10, 2, 64}, {384, 64, 1})), Overlap::kNo);
  EXPECT_EQ(overlap(q, view(buffer + 255, {10, 2, 64}, {384, 64, 1})), Overlap::kYes);
  EXPECT_EQ(overlap(q, view(buffer + 192, {10, 2, 64}, {384, 64, 1})), Overlap::kYes);
}

TEST(Overlap, InterleavedHeads) {
  const Tensor even = view(buffer, {10, 4, 64}, {512, 128, 1});
  EXPECT_EQ(overlap(even, view(buffer + 64, {10, 4, 64}, {512, 128, 1})), Overlap::kNo);
  EXPECT_EQ(overlap(even, view(buffer + 64, {10, 4, 65}, {512, 128, 1})), Overlap::kYes);
}

TEST(Overlap, BackToBackAndBackwards) {
  EXPECT_EQ(overlap(view(buffer, {8}, {1}), view(buffer + 8, {8}, {1})), Overlap::kNo);
  EXPECT_EQ(overlap(view(buffer + 7, {8}, {-1}), view(buffer + 8, {8}, {1})), Overlap::kNo);
  EXPECT_EQ(overlap(view(buffer + 8, {8}, {-1}), view(buffer + 8, {8}, {1})), Overlap::kYes);
}

TEST(Overlap, EmptyViewsAndOtherDevices) {
  Tensor a = view(buffer, {8}, {1});
  EXPECT_EQ(overlap(a, view(buffer, {0}, {1})), Overlap::kNo);
  Tensor b = a;
  b.device = {DeviceType::kCuda, 0};
  EXPECT_EQ(overlap(a, b), Overlap::kNo);
}

TEST(Overlap, SelfOverlap) {
  EXPECT_EQ(self_overlap(view(buffer, {3, 4}, {4, 1})), Overlap::kNo);
  EXPECT_EQ(self_overlap(view(buffer, {3, 4}, {3, 1})), Overlap::kYes);
  EXPECT_EQ(self_overlap(view(buffer, {3, 4}, {0, 1})), Overlap::kYes);
  EXPECT_EQ(self_overlap(view(buffer, {1, 4}, {0, 1})), Overlap::kNo);
  EXPECT_EQ(self_overlap(view(buffer + 99, {3, 4}, {-4, 1})), Overlap::kNo);
  EXPECT_EQ(self_overlap(view(buffer, {2, 2}, {3, 2})), Overlap::kNo);  // 0 2 3 5
  EXPECT_EQ(self_overlap(view(buffer, {3, 4}, {3, 2})), Overlap::kYes);
  EXPECT_EQ(self_overlap(view(buffer, {3, 0}, {0, 0})), Overlap::kNo);
}

TEST(Overlap, AgreesWithCountingBytes) {
  std::mt19937 random(7);
  const auto pick = [&](int lo, int hi) {
    return std::uniform_int_distribution<int>(lo, hi)(random);
  };
  const auto any_view = [&] {
    Tensor t = view(buffer + 1000 + pick(0, 40), {pick(1, 4), pick(1, 4), pick(1, 4)}, {0, 0, 0},
                    pick(0, 1) ? DType::kFloat32 : DType::kFloat16);
    for (int i = 0; i < 3; ++i) t.strides[i] = pick(-12, 12);
    return t;
  };
  for (int i = 0; i < 20000; ++i) {
    const Tensor a = any_view();
    const Tensor b = any_view();
    const auto bytes_a = bytes_of(a);
    const auto bytes_b = bytes_of(b);
    const std::set<std::uintptr_t> unique_a(bytes_a.begin(), bytes_a.end());
    bool shares = false;
    for (auto byte : bytes_b) shares = shares || unique_a.count(byte) > 0;
    ASSERT_EQ(overlap(a, b), shares ? Overlap::kYes : Overlap::kNo);
    ASSERT_EQ(self_overlap(a), unique_a.size() < bytes_a.size() ? Overlap::kYes : Overlap::kNo);
  }
}

TEST(Overlap, DecodeRefusesIt) {
  testing::Call c;
  c.args.out.data = c.k.data();
  EXPECT_REFUSED(InvalidArgument, "out: got memory that overlaps k_cache", decode(c.args));
  c = testing::Call();
  c.args.lse = testing::tensor(c.out.data() + 24, DType::kFloat32, {6, 4});
  EXPECT_REFUSED(InvalidArgument, "lse: got memory that overlaps out", decode(c.args));
  c = testing::Call();
  c.args.out.read_only = true;
  EXPECT_REFUSED(InvalidArgument, "out: got a read-only array", decode(c.args));
}

}  // namespace
}  // namespace pagedecode
