// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// One sequence, one query row, two keys in one page: out is the softmax-weighted mean of V.
#include <pagedecode/pagedecode.h>

#include <cmath>
#include <cstdio>
#include <initializer_list>

namespace {

template <class T>
pagedecode::Tensor view(T* data, pagedecode::DType dtype, std::initializer_list<int> shape) {
  pagedecode::Tensor t;
  t.data = data;
  t.dtype = dtype;
  for (int n : shape) t.shape[t.ndim++] = n;
  std::int64_t stride = 1;
  for (int i = t.ndim - 1; i >= 0; --i) {
    t.strides[i] = stride;
    stride *= t.shape[i];
  }
  return t;
}

}  // namespace

int main() {
  using pagedecode::DType;
  constexpr int kHeadDim = 8, kPageSize = 2;
  float q[kHeadDim] = {1}, out[kHeadDim] = {};
  float k[kPageSize][kHeadDim] = {{1}, {-1}}, v[kPageSize][kHeadDim] = {{1}, {3}};
  int block_table[1] = {0}, seq_lens[1] = {2};

  pagedecode::DecodeArgs args;
  args.q = view(q, DType::kFloat32, {1, 1, 1, kHeadDim});
  args.k_cache = view(k[0], DType::kFloat32, {1, kPageSize, 1, kHeadDim});
  args.v_cache = view(v[0], DType::kFloat32, {1, kPageSize, 1, kHeadDim});
  args.block_table = view(block_table, DType::kInt32, {1, 1});
  args.seq_lens = view(seq_lens, DType::kInt32, {1});
  args.softmax_scale = 0.5;
  args.out = view(out, DType::kFloat32, {1, 1, 1, kHeadDim});
  pagedecode::decode(args);

  const double p = 1 / (1 + std::exp(-1.0));  // logits 0.5 and -0.5
  const double want = p * 1 + (1 - p) * 3;
  std::printf("out[0] = %.6f, want %.6f; CUDA: %s\n", out[0], want,
              pagedecode::backends().cuda.why.c_str());
  return std::abs(out[0] - want) < 1e-5 ? 0 : 1;
}
