// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Random decode problems on a GPU, with a float64 reference on the host. Everything that must not
// matter is poisoned: unused slots hold NaN, unused table entries are huge or -1, outputs lie among
// sentinels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cuda/device.h"
#include "problem.h"

namespace pagedecode::test {

struct CaseSpec {
  std::string name;
  std::vector<int> m;  // query rows of each sequence
  std::vector<int> n;  // keys of each sequence
  int num_q_heads = 8;
  int num_kv_heads = 2;
  int head_dim = 128;
  int page_size = 16;
  DType q = DType::kBFloat16;
  DType k = DType::kBFloat16;
  DType v = DType::kBFloat16;
  DType out = DType::kFloat32;
  bool hnd = false;
  bool uniform = false;  // 4-d q; all m alike
  bool csr = false;
  bool wide = false;  // int64 indices, strided
  bool max_q_known = true;
  bool causal = true;
  MaskKind mask = MaskKind::kNone;
  bool positions = false;  // a tree's: depths repeat
  int window = -1;
  float softcap = 0.0f;
  bool alibi = false;
  bool sinks = false;
  bool rope = false;
  bool rope_interleaved = false;
  bool scales = false;  // per-head arrays
  bool base2 = false;
  int num_splits = 0;
  bool batch_invariant = false;
  float softmax_scale = 0.0f;  // 0: D^-0.5
  float k_gain = 1.0f;         // spread of K: large ones move the softmax's reference
  bool poison_hidden = false;  // NaN in prefix keys that windows hide from some rows
  unsigned seed = 1;
};

struct CaseResult {
  std::vector<std::uint8_t> out;  // as the kernel wrote it, sentinels included
  std::vector<float> lse;
};

class DecodeCase {
 public:
  explicit DecodeCase(const CaseSpec& spec);
  ~DecodeCase();
  DecodeCase(const DecodeCase&) = delete;
  DecodeCase& operator=(const DecodeCase&) = delete;

  // Runs the kernel in the shared workspace and brings the outputs back.
  CaseResult run();
  // Empty, or what differs from the float64 reference or was written outside.
  std::string compare(const CaseResult& r) const;
  // The outputs of row i of sequence b as bytes, for bitwise comparisons.
  std::string row_bits(const CaseResult& r, int b, int i) const;

  // The bits of one row of the flat q, for cases changed on the device.
  std::string row_bits_at(const CaseResult& r, std::int64_t flat_row) const;
  // Makes a one-sequence case a single step: row i of q, n keys.
  void set_single_row(int i, std::int32_t n, const std::int32_t (&cu)[2]);
  // Sequence 0's Q rows and keys become those of another case's sequence 0 (own pages).
  void copy_sequence_from(const DecodeCase& other);
  // The page of a key of sequence b gets an id past the pool.
  void break_page(int b, int key);
  bool all_nan(const CaseResult& r, int b) const;

  DecodeProblem problem;  // device pointers
  CaseSpec spec;
  double error = 0.0;           // of the last compare: largest, over max |V|
  double relative_error = 0.0;  // norm of the difference over the norm

 private:
  void make_cache(CacheView& view, DType type, float gain, std::vector<std::uint8_t>& bytes);
  const void* upload(const void* from, std::size_t bytes);

  DecodeProblem host_;  // the same with host pointers
  std::vector<void*> device_;
  std::vector<std::vector<std::uint8_t>> host_blocks_;
  std::vector<std::int64_t> first_row_;
  std::size_t out_bytes_ = 0;
  std::size_t lse_count_ = 0;
};

const cuda::DeviceInfo& device_info();
bool have_gpu();

}  // namespace pagedecode::test
