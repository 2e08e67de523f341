// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Tensors over vectors, and a small valid call to change one argument of.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "pagedecode/pagedecode.h"

namespace pagedecode::testing {

// Compact, over memory that the caller keeps.
inline Tensor tensor(void* data, DType dtype, std::initializer_list<std::int64_t> shape) {
  Tensor t;
  t.data = data;
  t.dtype = dtype;
  for (std::int64_t n : shape) t.shape[t.ndim++] = n;
  std::int64_t stride = 1;
  for (int i = t.ndim - 1; i >= 0; --i) {
    t.strides[i] = stride;
    stride *= t.shape[i];
  }
  return t;
}

// B = 2 sequences of m = 3 rows and 5 and 7 keys; Hq = 4, Hkv = 2, D = 16; 8 pages of P = 4.
struct Call {
  std::vector<float> q, k, v, out, lse;
  std::vector<std::int32_t> table, lens, offsets;
  DecodeArgs args;

  Call()
      : q(6 * 4 * 16, 0.0f),
        k(8 * 4 * 2 * 16, 1.0f),
        v(8 * 4 * 2 * 16, 2.0f),
        out(q.size(), 123.0f),
        lse(6 * 4, 123.0f),
        table{3, 1, 5, 7},
        lens{5, 7},
        offsets{0, 2, 6} {
    args.q = tensor(q.data(), DType::kFloat32, {2, 3, 4, 16});
    args.k_cache = tensor(k.data(), DType::kFloat32, {8, 4, 2, 16});
    args.v_cache = tensor(v.data(), DType::kFloat32, {8, 4, 2, 16});
    args.block_table = tensor(table.data(), DType::kInt32, {2, 2});
    args.seq_lens = tensor(lens.data(), DType::kInt32, {2});
    args.out = tensor(out.data(), DType::kFloat32, {2, 3, 4, 16});
  }

  // Rows 0 .. 1 and 2 .. 5.
  void make_ragged() {
    args.q = tensor(q.data(), DType::kFloat32, {6, 4, 16});
    args.out = tensor(out.data(), DType::kFloat32, {6, 4, 16});
    args.cu_seqlens_q = tensor(offsets.data(), DType::kInt32, {3});
  }

  // Everything on CUDA, in 16 bits. The memory is the host's: only checks may look at it.
  void move_to_cuda() {
    const Device cuda{DeviceType::kCuda, 0};
    for (Tensor* t :
         {&args.q, &args.k_cache, &args.v_cache, &args.out, &*args.block_table, &args.seq_lens}) {
      t->device = cuda;
      if (t->dtype == DType::kFloat32) t->dtype = DType::kFloat16;
    }
    if (args.cu_seqlens_q) args.cu_seqlens_q->device = cuda;
  }
};

// The message of the E that `run` throws; a failure if it throws none, or another.
template <class E, class Run>
std::string message_of(Run run) {
  try {
    run();
  } catch (const E& e) {
    return e.what();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "another exception: " << e.what();
    return "";
  }
  ADD_FAILURE() << "no exception";
  return "";
}

// `run` throws an E whose message begins with `start`.
#define EXPECT_REFUSED(E, start, run)                                                         \
  do {                                                                                        \
    const std::string message = ::pagedecode::testing::message_of<E>([&] { run; });           \
    EXPECT_EQ(message.substr(0, std::string(start).size()), start) << "message: " << message; \
  } while (false)

}  // namespace pagedecode::testing
