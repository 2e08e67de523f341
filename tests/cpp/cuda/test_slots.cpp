// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/gpu.h"
#include "pagedecode/cache_ops.h"

namespace pagedecode {
namespace {

using test::Twin;
using Int64s = std::vector<std::int64_t>;
class CudaSlots : public test::GpuTest {};

struct Arrays {
  Twin &seq_lens, &offsets, &out;
  Twin* table = nullptr;
  Twin* indptr = nullptr;
  Twin* indices = nullptr;
  std::int64_t page_size = 4;

  SlotsArgs args(bool gpu, cudaStream_t stream = nullptr) const {
    SlotsArgs a;
    const auto pick = [gpu](Twin& t) { return gpu ? t.gpu() : t.cpu(); };
    a.seq_lens = pick(seq_lens), a.cu_seqlens_q = pick(offsets), a.out = pick(out);
    if (table != nullptr) a.block_table = pick(*table);
    if (indptr != nullptr) a.page_indptr = pick(*indptr);
    if (indices != nullptr) a.page_indices = pick(*indices);
    a.page_size = page_size;
    a.stream = stream;
    return a;
  }
  Int64s on_gpu(std::size_t count) const {
    slots(args(true));
    Int64s got = out.downloaded<std::int64_t>();
    got.resize(count);
    return got;
  }
};

TEST_F(CudaSlots, PagesCrossedEmptySequencesAndPadding) {
  Twin table(DType::kInt32, {5, 3}), seq_lens(DType::kInt64, {5}), offsets(DType::kInt32, {6});
  Twin out(DType::kInt64, {12});
  table.set<std::int32_t>({7, 2, -1, 99, 99, 99, 5, -1, -1, 1, 0, 3, 6, 6, 6});
  seq_lens.set<std::int64_t>({6, 3, 2, 9, 0});
  offsets.set<std::int32_t>({0, 4, 4, 7, 9, 10});
  const Arrays arrays{seq_lens, offsets, out, &table};
  const Int64s want = {7 * 4 + 2, 7 * 4 + 3, 2 * 4, 2 * 4 + 1, -1, 5 * 4,
                       5 * 4 + 1, 3,         3 * 4, -1,        -1, -1};
  EXPECT_EQ(arrays.on_gpu(12), want);
  slots(arrays.args(false));
  EXPECT_TRUE(out.same()) << "as the CPU has it";
}

TEST_F(CudaSlots, PageListAndStrides) {
  Twin indptr(DType::kInt64, {3}), indices(DType::kInt32, {5}, {2});
  Twin seq_lens(DType::kInt32, {2}, {3}), offsets(DType::kInt64, {3}, {2});
  Twin out(DType::kInt64, {4}, {3});
  indptr.set<std::int64_t>({0, 2, 5});
  indices.set<std::int32_t>({4, 0, 8, 0, 1, 0, 2, 0, 3});
  seq_lens.set<std::int32_t>({5, 0, 0, 10});
  offsets.set<std::int64_t>({0, 0, 1, 0, 4});
  const Arrays arrays{seq_lens, offsets, out, nullptr, &indptr, &indices};
  slots(arrays.args(true));
  slots(arrays.args(false));
  EXPECT_TRUE(out.same());
  EXPECT_EQ(out.host<std::int64_t>()[0], 8 * 4);
  EXPECT_EQ(out.host<std::int64_t>()[9], 3 * 4 + 1);
}

TEST_F(CudaSlots, AnyContentsStayInBounds) {
  std::mt19937_64 rng(3);
  Twin table(DType::kInt64, {4, 3}), seq_lens(DType::kInt64, {4}), offsets(DType::kInt64, {5});
  Twin out(DType::kInt64, {100});
  for (int round = 0; round < 50; ++round) {
    table.randomise(rng), seq_lens.randomise(rng), offsets.randomise(rng);
    if (round % 2 == 1) {  // small numbers in no order
      for (int i = 0; i < 5; ++i) offsets.host<std::int64_t>()[i] %= 120;
      for (int i = 0; i < 4; ++i) seq_lens.host<std::int64_t>()[i] %= 16;
      offsets.upload(), seq_lens.upload();
    }
    slots(Arrays{seq_lens, offsets, out, &table}.args(true));
    test::must(cudaDeviceSynchronize());
    for (const std::int64_t slot : Arrays{seq_lens, offsets, out, &table}.on_gpu(100)) {
      EXPECT_GE(slot, -1);
    }
  }
}

TEST_F(CudaSlots, ManyRowsCaptured) {
  constexpr std::int64_t kBatch = 70000;
  const test::Stream stream;
  Twin table(DType::kInt32, {kBatch, 1}), seq_lens(DType::kInt32, {kBatch});
  Twin offsets(DType::kInt32, {kBatch + 1}), out(DType::kInt64, {kBatch});
  const Arrays arrays{seq_lens, offsets, out, &table, nullptr, nullptr, 16};
  test::Graph graph(stream, [&] { slots(arrays.args(true, stream)); });
  for (std::int32_t b = 0; b < kBatch; ++b) {
    table.host<std::int32_t>()[b] = kBatch - b;
    seq_lens.host<std::int32_t>()[b] = b % 17;
    offsets.host<std::int32_t>()[b + 1] = b + 1;
  }
  offsets.host<std::int32_t>()[0] = 0;
  table.upload(), seq_lens.upload(), offsets.upload();
  graph.replay(stream);
  slots(arrays.args(false));
  EXPECT_TRUE(out.same());
}

}  // namespace
}  // namespace pagedecode
