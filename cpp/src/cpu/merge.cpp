// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// merge_states: of each row and head, the mean of the states' outs weighted by exp(lse), and the
// log of the weights' sum. A state with LSE -inf is empty and its out is never read; a row with
// one state left is copied, bit for bit where the dtypes agree.
#include <algorithm>
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

// D elements, dim_stride apart, from or to float32.
void load_state(const StateView& s, std::int64_t row, std::int64_t head, std::int64_t count,
                float* dst) {
  const char* const src = element(s.out, row, head);
  if (s.dim_stride == 1) return load_row(s.out.dtype, src, count, dst);
  const std::int64_t step = s.dim_stride * bytes_of(s.out.dtype);
  for (std::int64_t d = 0; d < count; ++d) load_row(s.out.dtype, src + d * step, 1, dst + d);
}

void save_state(const StateView& s, std::int64_t row, std::int64_t head, std::int64_t count,
                const float* src) {
  char* const dst = element(s.out, row, head);
  if (s.dim_stride == 1) return save_row(s.out.dtype, src, count, dst);
  const std::int64_t step = s.dim_stride * bytes_of(s.out.dtype);
  for (std::int64_t d = 0; d < count; ++d) save_row(s.out.dtype, src + d, 1, dst + d * step);
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
    if (live == 0) {
      std::fill(sum_.begin(), sum_.end(), 0.0f);
      save_state(p_.result, row, head, p_.head_dim, sum_.data());
      lse_at(p_.result.lse, row, head) = kMinusInf;
    } else if (live == 1) {
      copy(p_.states[last], row, head);
    } else {
      weigh(row, head, max);
    }
  }

 private:
  void copy(const StateView& from, std::int64_t row, std::int64_t head) {
    const StateView& to = p_.result;
    if (from.out.dtype == to.out.dtype) {
      // NOTE: not by way of float32: a NaN's bits stay, too. In place, a row is copied to itself.
      const std::int64_t bytes = bytes_of(to.out.dtype);
      const char* const src = element(from.out, row, head);
      char* const dst = element(to.out, row, head);
      for (std::int64_t d = 0; d < p_.head_dim; ++d) {
        std::memmove(dst + d * to.dim_stride * bytes, src + d * from.dim_stride * bytes,
                     static_cast<std::size_t>(bytes));
      }
    } else {
      load_state(from, row, head, p_.head_dim, sum_.data());
      save_state(to, row, head, p_.head_dim, sum_.data());
    }
    lse_at(to.lse, row, head) = lse_at(from.lse, row, head);
  }

  void weigh(std::int64_t row, std::int64_t head, float max) {
    double total = 0.0;
    std::fill(sum_.begin(), sum_.end(), 0.0f);
    // Every state of the row is read before its result, which may be one of them, is written.
    for (std::int64_t s = 0; s < p_.num_states; ++s) {
      const float lse = lse_at(p_.states[s].lse, row, head);
      if (lse == kMinusInf) continue;
      const double above = static_cast<double>(lse) - static_cast<double>(max);
      const double weight = p_.lse_base2 ? std::exp2(above) : std::exp(above);
      total += weight;
      load_state(p_.states[s], row, head, p_.head_dim, part_.data());
      const auto w = static_cast<float>(weight);
      for (std::size_t d = 0; d < sum_.size(); ++d) sum_[d] += w * part_[d];
    }
    const auto inverse = static_cast<float>(1.0 / total);
    for (float& x : sum_) x *= inverse;
    save_state(p_.result, row, head, p_.head_dim, sum_.data());
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
