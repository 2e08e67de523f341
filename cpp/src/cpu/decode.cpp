// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "backend.h"
#include "cpu/convert.h"
#include "cpu/thread_pool.h"
#include "masks.h"
#include "rope.h"

namespace pagedecode::cpu {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

void rotate(const DecodeProblem& p, std::int64_t pos, float* x) {
  for (std::int32_t t = 0; t < p.head_dim / 2; ++t) {
    const float a = rope_angle(rope_turns(p.rope, p.head_dim, t), pos);
    float& x0 = x[rope_first(p.rope, t)];
    float& x1 = x[rope_second(p.rope, p.head_dim, t)];
    const float c = std::cos(a), s = std::sin(a), y0 = x0, y1 = x1;
    x0 = y0 * c - y1 * s;
    x1 = y1 * c + y0 * s;
  }
}

void decode_row(const DecodeProblem& p, const SequenceView& s, std::int64_t i, std::int64_t hq) {
  const std::int64_t h = hq / p.group, D = p.head_dim;
  const RowMask row = load_row(p, s, i);
  std::vector<float> q(D), x(D), acc(D);
  const bool ragged = static_cast<bool>(p.cu_seqlens_q);
  load_row(p.q.dtype,
           static_cast<const char*>(p.q.data) +
               (row_offset(p.q, s, i, ragged) + hq * p.q.head_stride) * bytes_of(p.q.dtype),
           D, q.data());
  if (p.rope.on) rotate(p, row.position, q.data());
  auto at = [&](const CacheView& c, std::int64_t j) {
    const std::int64_t page = page_id(p.pages, s, j / p.page_size);
    return static_cast<const char*>(c.data) +
           (page * c.page_stride + j % p.page_size * c.token_stride + h * c.head_stride) *
               bytes_of(c.dtype);
  };
  float max = kMinusInf, sum = 0.0f;
  for (std::int64_t j = row_begin(s, row); j < row_end(p, s, row); ++j) {
    if (!visible(p, s, row, j)) continue;
    load_row(p.k.dtype, at(p.k, j), D, x.data());
    const std::int64_t pos = key_position(p, s, j);
    if (p.rope.on) rotate(p, pos, x.data());
    float logit = 0.0f;
    for (std::int64_t d = 0; d < D; ++d) logit += q[d] * x[d];
    logit *= p.softmax_scale * p.k_scale[h];
    if (p.softcap > 0) logit = p.softcap * std::tanh(logit / p.softcap);
    if (p.alibi_slopes) logit += p.alibi_slopes[hq] * static_cast<float>(saturating_sub64(pos, row.position));
    if (logit == kMinusInf) continue;
    load_row(p.v.dtype, at(p.v, j), D, x.data());
    float w = 1.0f;
    if (logit > max) {
      const float a = std::exp(max - logit);
      sum *= a;
      for (std::int64_t d = 0; d < D; ++d) acc[d] *= a;
      max = logit;
    } else {
      w = std::exp(logit - max);
    }
    sum += w;
    for (std::int64_t d = 0; d < D; ++d) acc[d] += w * x[d];
  }
  float lse = sum == 0 ? kMinusInf : max + std::log(sum), keep = 1.0f;
  if (p.sinks) {
    const float sink = p.sinks[hq], top = lse > sink ? lse : sink;
    const float total = top + std::log(std::exp(lse - top) + std::exp(sink - top));
    keep = std::exp(lse - total);
    lse = total;
  }
  for (std::int64_t d = 0; d < D; ++d) acc[d] = sum == 0 ? 0.0f : acc[d] / sum * keep * p.v_scale[h];
  save_row(p.out.dtype, acc.data(), D,
           static_cast<char*>(p.out.data) +
               (row_offset(p.out, s, i, ragged) + hq * p.out.head_stride) * bytes_of(p.out.dtype));
  if (p.lse.data) {
    p.lse.data[row.flat_row * p.lse.row_stride + hq * p.lse.head_stride] =
        p.lse_base2 ? lse * 1.44269504f : lse;
  }
}

}  // namespace

void decode(const DecodeProblem& p) {
  auto item = [&](std::int64_t at) {
    const SequenceView s = load_sequence(p, at / p.num_q_heads);
    for (std::int64_t i = 0; i < s.m; ++i) decode_row(p, s, i, at % p.num_q_heads);
  };
  parallel_for(p.batch * p.num_q_heads, max_threads(), item);
}

std::size_t workspace_size(const DecodeProblem&) { return 0; }

Explanation explain(const DecodeProblem&) {
  Explanation e;
  e.backend = "cpu";
  e.kernel = "plain";
  e.tile_rows = 1;
  e.tile_keys = 1;
  e.splits = 1;
  e.why = "plain loop over rows";
  return e;
}

BackendStatus status() { return {true, true, ""}; }

}  // namespace pagedecode::cpu

namespace pagedecode {
std::string cpu_isa() { return "baseline"; }
}  // namespace pagedecode
