// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/paged_call.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "cpu/convert.h"
#include "masks.h"
#include "rope.h"

namespace pagedecode::cpu {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<char> random_elements(DType dtype, std::size_t count, float scale, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  std::vector<float> x(count);
  for (float& e : x) e = normal(rng) * scale;
  std::vector<char> bytes(count * static_cast<std::size_t>(bytes_of(dtype)));
  save_row(dtype, x.data(), static_cast<std::int64_t>(count), bytes.data());
  return bytes;
}

std::vector<double> row_at(DType dtype, const void* p, std::int64_t count) {
  std::vector<float> x(static_cast<std::size_t>(count));
  load_row(dtype, p, count, x.data());
  return {x.begin(), x.end()};
}

void rotate(const DecodeProblem& p, std::int64_t position, std::vector<double>& x) {
  for (std::int32_t t = 0; t < p.head_dim / 2; ++t) {
    const double angle = static_cast<double>(position) / p.rope.scale *
                         std::pow(p.rope.theta, -2.0 * t / p.head_dim);
    double& a = x[static_cast<std::size_t>(rope_first(p.rope, t))];
    double& b = x[static_cast<std::size_t>(rope_second(p.rope, p.head_dim, t))];
    const double a0 = a;
    const double b0 = b;
    a = a0 * std::cos(angle) - b0 * std::sin(angle);
    b = b0 * std::cos(angle) + a0 * std::sin(angle);
  }
}

const char* key_row(const DecodeProblem& p, const CacheView& c, const SequenceView& s,
                    std::int64_t key, std::int64_t head) {
  const std::int64_t page = page_id(p.pages, s, key / p.page_size);
  return static_cast<const char*>(c.data) +
         (page * c.page_stride + key % p.page_size * c.token_stride + head * c.head_stride) *
             bytes_of(c.dtype);
}

}  // namespace

PagedCall::PagedCall(const Shape& shape, unsigned seed) {
  std::mt19937 rng(seed);
  const auto batch = static_cast<std::int64_t>(shape.m.size());
  offsets = {0};
  for (const std::int64_t m : shape.m) offsets.push_back(offsets.back() + m);
  lens = shape.n;
  const std::int64_t longest = *std::max_element(lens.begin(), lens.end());
  const std::int64_t width = longest / shape.page_size + 2;
  const std::int64_t pages = batch * width + 2;
  const std::int64_t q_heads = shape.kv_heads * shape.group;
  const std::int64_t rows = offsets.back();

  const auto cache =
      static_cast<std::size_t>(pages * shape.page_size * shape.kv_heads * shape.head_dim);
  const float k_scale = shape.k == DType::kInt8 ? 30.0f : 1.0f;
  const float v_scale = shape.v == DType::kInt8 ? 30.0f : 1.0f;
  q = random_elements(shape.q, static_cast<std::size_t>(rows * q_heads * shape.head_dim), 1, rng);
  k = random_elements(shape.k, cache, k_scale, rng);
  v = random_elements(shape.v, cache, v_scale, rng);
  out.assign(static_cast<std::size_t>(rows * q_heads * shape.head_dim * 4), '\xff');
  lse.assign(static_cast<std::size_t>(rows * q_heads), std::nanf(""));

  std::vector<std::int64_t> ids(static_cast<std::size_t>(pages));
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), rng);
  table.assign(static_cast<std::size_t>(batch * width), -1);
  std::size_t next = 0;
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t used =
        (lens[static_cast<std::size_t>(b)] + shape.page_size - 1) / shape.page_size;
    for (std::int64_t i = 0; i < used; ++i)
      table[static_cast<std::size_t>(b * width + i)] = ids[next++];
  }

  p.batch = batch;
  p.total_q = rows;
  p.max_q = *std::max_element(shape.m.begin(), shape.m.end());
  p.num_q_heads = static_cast<std::int32_t>(q_heads);
  p.num_kv_heads = shape.kv_heads;
  p.group = shape.group;
  p.head_dim = shape.head_dim;
  p.page_size = shape.page_size;
  p.q = {q.data(), shape.q, 0, q_heads * shape.head_dim, shape.head_dim};
  p.out = {out.data(), shape.out, 0, q_heads * shape.head_dim, shape.head_dim};
  p.lse = {lse.data(), q_heads, 1};
  const std::int64_t page_stride =
      static_cast<std::int64_t>(shape.page_size) * shape.kv_heads * shape.head_dim;
  const std::int64_t token = shape.hnd ? shape.head_dim : shape.kv_heads * shape.head_dim;
  const std::int64_t head = shape.hnd ? shape.page_size * shape.head_dim : shape.head_dim;
  p.k = {k.data(), shape.k, page_stride, token, head};
  p.v = {v.data(), shape.v, page_stride, token, head};
  p.pages.entries = {table.data(), 1, true};
  p.pages.row_stride = width;
  p.pages.width = width;
  p.pages.num_pages = pages;
  p.seq_lens = {lens.data(), 1, true};
  p.cu_seqlens_q = {offsets.data(), 1, true};
  p.softmax_scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  p.k_scale.value = 1.0f / k_scale;
  p.v_scale.value = 1.0f / v_scale;
}

char* PagedCall::key_address(const CacheView& c, std::int64_t slot, std::int64_t head) const {
  return static_cast<char*>(c.data) + (slot / p.page_size * c.page_stride +
                                       slot % p.page_size * c.token_stride + head * c.head_stride) *
                                          bytes_of(c.dtype);
}

void PagedCall::poison_unseen(float value) {
  std::vector<bool> seen(static_cast<std::size_t>(p.pages.num_pages * p.page_size));
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const SequenceView s = load_sequence(p, b);
    for (std::int64_t i = 0; i < s.m; ++i) {
      const RowMask row = load_row(p, s, i);
      for (std::int64_t key = 0; key < s.n; ++key) {
        const std::int64_t page = page_id(p.pages, s, key / p.page_size);
        if (visible(p, s, row, key)) {
          seen[static_cast<std::size_t>(page * p.page_size + key % p.page_size)] = true;
        }
      }
    }
  }
  const std::vector<float> row(static_cast<std::size_t>(p.head_dim), value);
  for (std::size_t slot = 0; slot < seen.size(); ++slot) {
    if (seen[slot]) continue;
    for (std::int64_t h = 0; h < p.num_kv_heads; ++h) {
      for (const CacheView* c : {&p.k, &p.v}) {
        save_row(c->dtype, row.data(), p.head_dim,
                 key_address(*c, static_cast<std::int64_t>(slot), h));
      }
    }
  }
}

void PagedCall::set_key(bool value_cache, std::int64_t sequence, std::int64_t key, float value) {
  const SequenceView s = load_sequence(p, sequence);
  const CacheView& c = value_cache ? p.v : p.k;
  const std::vector<float> row(static_cast<std::size_t>(p.head_dim), value);
  for (std::int64_t h = 0; h < p.num_kv_heads; ++h) {
    save_row(c.dtype, row.data(), p.head_dim, const_cast<char*>(key_row(p, c, s, key, h)));
  }
}

std::vector<float> PagedCall::out_row(std::int64_t row, std::int64_t head) const {
  std::vector<float> x(static_cast<std::size_t>(p.head_dim));
  load_row(p.out.dtype,
           out.data() + (row * p.out.row_stride + head * p.out.head_stride) * bytes_of(p.out.dtype),
           p.head_dim, x.data());
  return x;
}

float PagedCall::lse_at(std::int64_t row, std::int64_t head) const {
  return lse[static_cast<std::size_t>(row * p.lse.row_stride + head * p.lse.head_stride)];
}

Errors errors_of(const PagedCall& call) {
  const DecodeProblem& p = call.p;
  Errors worst = {0.0, 0.0};
  double largest = 1e-30;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const SequenceView s = load_sequence(p, b);
    for (std::int64_t at = 0; at < s.m * p.num_q_heads; ++at) {
      const RowMask row = load_row(p, s, at / p.num_q_heads);
      const std::int64_t head = at % p.num_q_heads;
      const std::int64_t kv_head = head / p.group;
      std::vector<double> q =
          row_at(p.q.dtype,
                 static_cast<const char*>(p.q.data) +
                     (row.flat_row * p.q.row_stride + head * p.q.head_stride) * bytes_of(p.q.dtype),
                 p.head_dim);
      if (p.rope.on) rotate(p, row.position, q);

      std::vector<double> logits;
      std::vector<std::int64_t> keys;
      const double sink = p.sinks ? static_cast<double>(p.sinks[head]) : -kInf;
      double top = sink;
      for (std::int64_t key = 0; key < s.n; ++key) {
        if (!visible(p, s, row, key)) continue;
        std::vector<double> k = row_at(p.k.dtype, key_row(p, p.k, s, key, kv_head), p.head_dim);
        if (p.rope.on) rotate(p, key_position(p, s, key), k);
        double x = std::inner_product(q.begin(), q.end(), k.begin(), 0.0);
        x *= static_cast<double>(p.softmax_scale) * p.k_scale[kv_head];
        if (p.softcap > 0) x = p.softcap * std::tanh(x / p.softcap);
        if (p.alibi_slopes) {
          x += p.alibi_slopes[head] * static_cast<double>(key_position(p, s, key) - row.position);
        }
        logits.push_back(x);
        keys.push_back(key);
        top = std::max(top, x);
      }
      double total = std::isfinite(sink) ? std::exp(sink - top) : 0.0;
      for (const double x : logits) total += std::exp(x - top);
      std::vector<double> want(static_cast<std::size_t>(p.head_dim));
      for (std::size_t i = 0; i < keys.size(); ++i) {
        const std::vector<double> v =
            row_at(p.v.dtype, key_row(p, p.v, s, keys[i], kv_head), p.head_dim);
        for (std::size_t d = 0; d < v.size(); ++d) {
          want[d] += std::exp(logits[i] - top) / total * v[d] * p.v_scale[kv_head];
          largest = std::max(largest, std::abs(v[d] * p.v_scale[kv_head]));
        }
      }

      const double lse =
          total == 0.0 ? -kInf : (top + std::log(total)) / (p.lse_base2 ? std::log(2.0) : 1.0);
      const double got = call.lse_at(row.flat_row, head);
      if (lse != got)
        worst.lse = std::abs(lse - got) < kInf ? std::max(worst.lse, std::abs(lse - got)) : kInf;
      const std::vector<float> out = call.out_row(row.flat_row, head);
      for (std::size_t d = 0; d < out.size(); ++d) {
        const double error = std::abs(out[d] - want[d]);
        worst.out = error < kInf ? std::max(worst.out, error) : kInf;
      }
    }
  }
  worst.out /= largest;
  return worst;
}

}  // namespace pagedecode::cpu
