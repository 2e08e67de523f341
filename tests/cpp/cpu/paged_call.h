// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// A random decode problem over memory of its own, and what a naive float64 loop makes of it.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "problem.h"
#include "sequence.h"

namespace pagedecode::cpu {

struct Shape {
  std::vector<std::int64_t> m = {1};
  std::vector<std::int64_t> n = {100};
  int kv_heads = 2;
  int group = 4;
  int head_dim = 64;
  int page_size = 16;
  DType q = DType::kFloat32;
  DType k = DType::kFloat32;
  DType v = DType::kFloat32;
  DType out = DType::kFloat32;
  bool hnd = false;
};

struct PagedCall {
  // Normal numbers everywhere; shuffled pages; unused table entries are -1.
  PagedCall(const Shape& shape, unsigned seed);

  // Overwrites D elements of every (slot, head) of K and V that no row sees.
  void poison_unseen(float value);
  // Overwrites one key's K or V elements, of all heads.
  void set_key(bool value_cache, std::int64_t sequence, std::int64_t key, float value);

  std::vector<float> out_row(std::int64_t row, std::int64_t head) const;
  float lse_at(std::int64_t row, std::int64_t head) const;

  DecodeProblem p;
  std::vector<char> q, k, v, out;
  std::vector<float> lse;
  std::vector<std::int64_t> table, lens, offsets, positions;
  std::vector<std::uint8_t> mask;
  std::vector<float> slopes, sinks;

 private:
  char* key_address(const CacheView& c, std::int64_t slot, std::int64_t head) const;
};

// Largest error of out, relative to max |v|, and of the LSE; infinite where one is NaN or a wrong
// infinity.
struct Errors {
  double out;
  double lse;
};
Errors errors_of(const PagedCall& call);

}  // namespace pagedecode::cpu
