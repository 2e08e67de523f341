// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/output.h"

#include <cmath>
#include <limits>

#include "cpu/convert.h"

namespace pagedecode::cpu {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kMinusInf = -kInf;
constexpr float kZeros[kMaxHeadDim] = {};

}  // namespace

void write_row(const Call& call, const SequenceView& s, std::int64_t row, std::int64_t kv_head,
               std::int64_t query_head, const RowResult& result) {
  const DecodeProblem& p = call.p;
  const double sink = p.sinks ? static_cast<double>(p.sinks[query_head]) : kMinusInf;
  // A sum of 0: nothing seen, or logits of -inf alone. A maximum of -inf besides: NaN logits. An
  // infinite sink leaves no weight to keys.
  const bool empty = result.sum == 0.0f || (sink == kInf && !std::isnan(result.sum));
  double total = result.sum;
  double reference = result.max;
  if (reference == kMinusInf && !empty) reference = 0.0;
  double weight = 1.0;  // of the keys against the sink
  if (empty) {
    reference = sink;
    total = sink == kMinusInf ? 0.0 : 1.0;
  } else if (sink != kMinusInf) {
    const double top = reference > sink ? reference : sink;
    weight = std::exp(reference - top);
    total = total * weight + std::exp(sink - top);
    reference = top;
  }

  const bool ragged = static_cast<bool>(p.cu_seqlens_q);
  const std::int64_t at = row_offset(p.out, s, row, ragged) + query_head * p.out.head_stride;
  char* const out = static_cast<char*>(p.out.data) + at * bytes_of(p.out.dtype);
  if (empty) {
    call.level.store_row(p.out.dtype, kZeros, 1.0f, p.head_dim, out);
  } else {
    const auto scale = static_cast<float>(weight / total * p.v_scale[kv_head]);
    call.level.store_row(p.out.dtype, result.out, scale, p.head_dim, out);
  }

  if (p.lse.data == nullptr) return;
  double lse = total == 0.0 ? kMinusInf : reference + std::log(total);
  if (p.lse_base2) lse *= 1.44269504088896340736;
  p.lse.data[(s.first_row + row) * p.lse.row_stride + query_head * p.lse.head_stride] =
      static_cast<float>(lse);
}

}  // namespace pagedecode::cpu
