// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// check() of CUDA arrays: what lives on the GPU is read back and refused as on the CPU.
#include <string>

#include "cuda/gpu.h"
#include "pagedecode/decode.h"
#include "pagedecode/error.h"

namespace pagedecode {
namespace {

using test::Twin;
class CudaCheckContents : public test::GpuTest {};

// Three sequences of 2, 0 and 3 rows over pages of 4 tokens; every index array has gaps.
struct Problem {
  Twin q{DType::kFloat16, {5, 2, 8}};
  Twin cache{DType::kFloat16, {6, 4, 1, 8}};
  Twin table{DType::kInt32, {3, 3}, {8, 2}};
  Twin seq_lens{DType::kInt64, {3}, {2}};
  Twin offsets{DType::kInt32, {4}, {3}};
  Twin indptr{DType::kInt32, {4}};
  Twin indices{DType::kInt64, {5}, {2}};
  bool list = false;

  Problem() {
    for (int b = 0; b < 3; ++b) {
      for (int i = 0; i < 3; ++i) table.host<std::int32_t>()[8 * b + 2 * i] = i < 2 ? b + i : -1;
      seq_lens.host<std::int64_t>()[2 * b] = 5 + b;
    }
    const int starts[] = {0, 2, 2, 5};
    for (int b = 0; b < 4; ++b) offsets.host<std::int32_t>()[3 * b] = starts[b];
    indptr.set<std::int32_t>({0, 2, 4, 5});
    for (int i = 0; i < 5; ++i) indices.host<std::int64_t>()[2 * i] = i;
    upload();
  }

  void upload() { table.upload(), seq_lens.upload(), offsets.upload(), indices.upload(); }

  DecodeArgs args() {
    DecodeArgs a;
    a.q = q.gpu();
    a.k_cache = a.v_cache = cache.gpu();
    a.seq_lens = seq_lens.gpu();
    a.cu_seqlens_q = offsets.gpu();
    if (list) {
      a.page_indptr = indptr.gpu();
      a.page_indices = indices.gpu();
    } else {
      a.block_table = table.gpu();
    }
    return a;
  }

  // The error's text; empty if there is none.
  std::string refusal(DecodeArgs a) {
    upload();
    try {
      check(a);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  }
  std::string refusal() { return refusal(args()); }
};

bool starts_with(const std::string& text, const std::string& start) {
  return text.compare(0, start.size(), start) == 0;
}

TEST_F(CudaCheckContents, SoundOnesPass) {
  Problem p;
  EXPECT_EQ(p.refusal(), "");
  p.list = true;
  p.seq_lens.host<std::int64_t>()[4] = 4;
  EXPECT_EQ(p.refusal(), "");
}

TEST_F(CudaCheckContents, Lengths) {
  for (const std::int64_t n : {std::int64_t{-1}, std::int64_t{13}, INT64_MAX}) {
    Problem p;
    p.seq_lens.host<std::int64_t>()[2] = n;
    EXPECT_TRUE(starts_with(p.refusal(), "seq_lens[1]: got " + std::to_string(n))) << p.refusal();
  }
}

TEST_F(CudaCheckContents, PagesThatAreNeeded) {
  for (const int id : {-1, 6, INT32_MAX}) {
    Problem p;
    p.table.host<std::int32_t>()[8 + 2] = id;
    EXPECT_TRUE(starts_with(p.refusal(), "block_table: got page id " + std::to_string(id)));
    p.seq_lens.host<std::int64_t>()[2] = 4;  // one page only: the second is not followed
    EXPECT_EQ(p.refusal(), "");
  }
  Problem p;
  p.list = true;
  p.seq_lens.host<std::int64_t>()[4] = 4;
  p.indices.host<std::int64_t>()[8] = std::int64_t{1} << 40;
  EXPECT_TRUE(starts_with(p.refusal(), "block_table"));
}

TEST_F(CudaCheckContents, Offsets) {
  Problem falling;
  falling.offsets.host<std::int32_t>()[6] = 1;
  EXPECT_TRUE(starts_with(falling.refusal(), "cu_seqlens_q[2]: got 1"));
  Problem past;
  past.offsets.host<std::int32_t>()[9] = 6;
  EXPECT_TRUE(starts_with(past.refusal(), "cu_seqlens_q[3]: got 6"));
  Problem p;
  DecodeArgs args = p.args();
  args.max_seqlen_q = 2;
  EXPECT_TRUE(starts_with(p.refusal(args), "max_seqlen_q: got 2"));
}

TEST_F(CudaCheckContents, MaskWidth) {
  Problem p;
  for (const int width : {3, 32, 2, 4, 5}) {
    Twin mask(DType::kBool, {5, width});
    DecodeArgs args = p.args();
    args.draft_mask = mask.gpu();
    const bool right = width == 3 || width == 32;
    EXPECT_EQ(p.refusal(args).empty(), right) << width;
  }
}

TEST_F(CudaCheckContents, NotDuringACapture) {
  Problem p;
  const test::Stream stream;
  test::Graph graph(stream, [&] {
    DecodeArgs args = p.args();
    args.stream = stream;
    EXPECT_THROW(check(args), Unsupported);
  });
}

TEST_F(CudaCheckContents, WaitsForTheStream) {
  // The lengths become sound on the stream, behind a long copy.
  Problem p;
  p.seq_lens.host<std::int64_t>()[0] = -1;
  p.upload();
  const test::Stream stream;
  void* scratch = nullptr;
  test::must(cudaMalloc(&scratch, std::size_t{1} << 30));
  for (int i = 0; i < 20; ++i) {
    test::must(cudaMemsetAsync(scratch, i, std::size_t{1} << 30, stream));
  }
  DecodeArgs args = p.args();
  test::must(cudaMemsetAsync(args.seq_lens.data, 0, 8, stream));
  args.stream = stream;
  EXPECT_NO_THROW(check(args));
  test::must(cudaFree(scratch));
}

}  // namespace
}  // namespace pagedecode
