// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// merge_states: of each row and head, the mean of the states' outs weighted by exp(lse), and the
// log of the weights' sum. A state with LSE -inf is empty and its out is never read; a row with
// one state left is copied, bit for bit where the dtypes agree.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "backend.h"
#include "cpu/convert.h"
#include "cpu/thread_pool.h"

namespace pagedecode::cpu {
namespace {

constexpr std::int64_t kSerialElements = 1 << 16;
constexpr std::int64_t kRowsPerItem = 16;
constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

char* element(const RowsView& r, std::int64_t row, std::int64_t head) {
  return static_cast<char*>(r.data) +
         (row * r.row_stride + head * r.head_stride) * bytes_of(r.dtype);
}

float& lse_at(const LseView& l, std::int64_t row, std::int64_t head) {
  return l.data[row * l.row_stride + head * l.head_stride];
}

class RowMerger {
 public:
  explicit RowMerger(const MergeProblem& p)
      : p_(p), sum_(static_cast<std::size_t>(p.head_dim)), part_(sum_.size()) {}

  void merge(std::int64_t row, std::int64_t head) {
    // Which states count?
    std::int64_t live = 0;
    std::int64_t last = 0;
    float max = kMinusInf;
    for (std::int64_t s = 0; s < p_.num_states; ++s) {
      const float lse = lse_at(p_.states[s].lse, row, head);
      if (lse == kMinusInf) continue;
      ++live;
      last = s;
      if (!(lse <= max)) max = lse;  // NaN, too
    }
    char* const out = element(p_.result.out, row, head);
    const DType dtype = p_.result.out.dtype;
    if (live == 0) {
      std::fill(sum_.begin(), sum_.end(), 0.0f);
      save_row(dtype, sum_.data(), p_.head_dim, out);
      lse_at(p_.result.lse, row, head) = kMinusInf;
    } else if (live == 1) {
      copy(p_.states[last], row, head, out);
    } else {
      weigh(row, head, max, out);
    }
  }

 private:
  void copy(const StateView& from, std::int64_t row, std::int64_t head, char* out) {
    const char* src = element(from.out, row, head);
    const DType dtype = p_.result.out.dtype;
    if (from.out.dtype == dtype) {
      std::memmove(out, src, static_cast<std::size_t>(p_.head_dim * bytes_of(dtype)));
    } else {
      load_row(from.out.dtype, src, p_.head_dim, sum_.data());
      save_row(dtype, sum_.data(), p_.head_dim, out);
    }
    lse_at(p_.result.lse, row, head) = lse_at(from.lse, row, head);
  }

  void weigh(std::int64_t row, std::int64_t head, float max, char* out) {
    double total = 0.0;
    std::fill(sum_.begin(), sum_.end(), 0.0f);
    // Every state of the row is read before its result, which may be one of them, is written.
    for (std::int64_t s = 0; s < p_.num_states; ++s) {
      const float lse = lse_at(p_.states[s].lse, row, head);
      if (lse == kMinusInf) continue;
      const double above = static_cast<double>(lse) - static_cast<double>(max);
      const double weight = p_.lse_base2 ? std::exp2(above) : std::exp(above);
      total += weight;
      const StateView& state = p_.states[s];
      load_row(state.out.dtype, element(state.out, row, head), p_.head_dim, part_.data());
      const auto w = static_cast<float>(weight);
      for (std::size_t d = 0; d < sum_.size(); ++d) sum_[d] += w * part_[d];
    }
    const auto inverse = static_cast<float>(1.0 / total);
    for (float& x : sum_) x *= inverse;
    save_row(p_.result.out.dtype, sum_.data(), p_.head_dim, out);
    const double log_total = p_.lse_base2 ? std::log2(total) : std::log(total);
    lse_at(p_.result.lse, row, head) = static_cast<float>(static_cast<double>(max) + log_total);
  }

  const MergeProblem& p_;
  std::vector<float> sum_;   // [D]
  std::vector<float> part_;  // [D]
};

}  // namespace

void merge_states(const MergeProblem& p) {
  auto some_rows = [&](std::int64_t item) {
    RowMerger merger(p);
    const std::int64_t begin = item * kRowsPerItem;
    const std::int64_t end = begin + kRowsPerItem < p.rows ? begin + kRowsPerItem : p.rows;
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::int64_t head = 0; head < p.num_heads; ++head) merger.merge(row, head);
    }
  };
  const bool serial = p.rows * p.num_heads * p.head_dim * p.num_states <= kSerialElements;
  parallel_for((p.rows + kRowsPerItem - 1) / kRowsPerItem, serial ? 1 : max_threads(), some_rows);
}

}  // namespace pagedecode::cpu
