// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/decode_case.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <stdexcept>
#include <thread>

#include "cuda/decode/launch.h"
#include "cuda/host_values.h"
#include "masks.h"
#include "rope.h"

namespace pagedecode::test {
namespace {

void check(cudaError_t e) {
  if (e != cudaSuccess) throw std::runtime_error(cudaGetErrorString(e));
}

constexpr std::uint8_t kSentinel = 0xa5;
constexpr int kOutPad = 8;  // elements between rows

int bytes_of(DType t) { return size_of(t); }

}  // namespace

const cuda::DeviceInfo& device_info() {
  static const cuda::DeviceInfo info = [] {
    cuda::DeviceInfo d;
    cudaDeviceGetAttribute(&d.sm_count, cudaDevAttrMultiProcessorCount, 0);
    cudaDeviceGetAttribute(&d.cc_major, cudaDevAttrComputeCapabilityMajor, 0);
    cudaDeviceGetAttribute(&d.cc_minor, cudaDevAttrComputeCapabilityMinor, 0);
    cudaDeviceGetAttribute(&d.max_smem_optin, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
    return d;
  }();
  return info;
}

bool have_gpu() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

const void* DecodeCase::upload(const void* from, std::size_t bytes) {
  void* d = nullptr;
  check(cudaMalloc(&d, bytes + 64));
  check(cudaMemcpy(d, from, bytes, cudaMemcpyHostToDevice));
  device_.push_back(d);
  return d;
}

void DecodeCase::make_cache(CacheView& view, DType type, float gain,
                            std::vector<std::uint8_t>& bytes) {
  const std::int64_t P = spec.page_size, H = spec.num_kv_heads, D = spec.head_dim;
  const std::int64_t pad = type == DType::kInt8 || bytes_of(type) == 1 ? 16 : 8;
  view.dtype = type;
  view.head_stride = spec.hnd ? P * D : D;
  view.token_stride = spec.hnd ? D : H * D;
  view.page_stride = P * H * D + pad;
  bytes.assign(host_.pages.num_pages * view.page_stride * bytes_of(type), 0xff);
  std::mt19937 rng(spec.seed * 7919 + static_cast<unsigned>(&view == &host_.v));
  // Drawn from a pool: the suite spends most of its time here.
  std::normal_distribution<float> normal(0.0f, gain);
  constexpr std::size_t kPool = 1 << 14;
  const std::size_t size = bytes_of(type);
  std::vector<std::uint8_t> pool(kPool * size);
  for (std::size_t i = 0; i < kPool; ++i) store_value(type, pool.data() + i * size, normal(rng));
  view.data = bytes.data();
  for (std::int64_t b = 0; b < host_.batch; ++b) {
    const SequenceView s = load_sequence(host_, b);
    for (std::int64_t key = 0; key < s.n; ++key) {
      const std::int64_t page = page_id(host_.pages, s, key / P);
      for (std::int64_t h = 0; h < H; ++h) {
        const std::int64_t at =
            page * view.page_stride + key % P * view.token_stride + h * view.head_stride;
        for (std::int64_t d = 0; d < D; ++d) {
          std::memcpy(bytes.data() + (at + d) * size, pool.data() + rng() % kPool * size, size);
        }
      }
    }
  }
}

DecodeCase::DecodeCase(const CaseSpec& given) : problem{}, spec(given), host_{} {
  std::mt19937 rng(spec.seed);
  std::normal_distribution<float> normal;
  DecodeProblem& p = host_;
  const auto batch = static_cast<std::int64_t>(spec.m.size());
  const std::int64_t P = spec.page_size, D = spec.head_dim, Hq = spec.num_q_heads;
  p.batch = batch;
  p.num_q_heads = spec.num_q_heads;
  p.num_kv_heads = spec.num_kv_heads;
  p.group = spec.num_q_heads / spec.num_kv_heads;
  p.head_dim = spec.head_dim;
  p.page_size = P;
  first_row_.assign(batch + 1, 0);
  std::int64_t pages = 3, width = 1;
  for (std::int64_t b = 0; b < batch; ++b) {
    first_row_[b + 1] = first_row_[b] + spec.m[b];
    p.max_q = std::max<std::int64_t>(p.max_q, spec.m[b]);
    const std::int64_t own = (spec.n[b] + P - 1) / P;
    pages += own;
    width = std::max(width, own + 2);
  }
  p.total_q = first_row_[batch];
  p.max_q_known = spec.max_q_known;
  p.uniform_q = spec.uniform ? p.max_q : -1;
  if (!spec.max_q_known) p.max_q = p.total_q;
  p.pages.num_pages = pages;

  // Index arrays: packed int32, or int64 with a stride of 2 and garbage between.
  auto index_array = [&](const std::vector<std::int64_t>& values) {
    IndexArray host;
    host.wide = spec.wide;
    host.stride = spec.wide ? 2 : 1;
    host_blocks_.emplace_back(values.size() * (spec.wide ? 16 : 4) + 16, 0x77);
    std::uint8_t* at = host_blocks_.back().data();
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (spec.wide) {
        std::memcpy(at + i * 16, &values[i], 8);
      } else {
        const auto x = static_cast<std::int32_t>(values[i]);
        std::memcpy(at + i * 4, &x, 4);
      }
    }
    host.data = at;
    return host;
  };
  std::vector<std::int64_t> ids(pages);
  for (std::int64_t i = 0; i < pages; ++i) ids[i] = i;
  std::shuffle(ids.begin(), ids.end(), rng);
  std::vector<std::int64_t> table(batch * width, spec.seed % 2 ? -1 : 0x7fffffff), indptr{0}, flat;
  std::int64_t next = 0;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t i = 0; i < (spec.n[b] + P - 1) / P; ++i) {
      table[b * width + i] = ids[next];
      flat.push_back(ids[next++]);
    }
    indptr.push_back(static_cast<std::int64_t>(flat.size()));
  }
  flat.push_back(-5);
  if (spec.csr) {
    p.pages.entries = index_array(flat);
    p.pages.indptr = index_array(indptr);
    p.pages.width = static_cast<std::int64_t>(flat.size());
  } else {
    p.pages.entries = index_array(table);
    p.pages.row_stride = width * p.pages.entries.stride;
    p.pages.width = width;
  }
  p.seq_lens = index_array({spec.n.begin(), spec.n.end()});
  if (!spec.uniform) p.cu_seqlens_q = index_array(first_row_);

  // Q: rows with a gap between heads.
  host_blocks_.reserve(64);
  p.q.dtype = spec.q;
  p.q.head_stride = D + 8;
  p.q.row_stride = Hq * p.q.head_stride;
  p.q.seq_stride = p.max_q * p.q.row_stride;
  const std::size_t q_bytes = (p.total_q * p.q.row_stride + 8) * 2;
  host_blocks_.emplace_back(q_bytes, 0xff);
  p.q.data = host_blocks_.back().data();
  for (std::int64_t r = 0; r < p.total_q; ++r) {
    for (std::int64_t h = 0; h < Hq; ++h) {
      for (std::int64_t d = 0; d < D; ++d) {
        store_value(spec.q,
                    host_blocks_.back().data() + 2 * (r * p.q.row_stride + h * p.q.head_stride + d),
                    normal(rng));
      }
    }
  }
  std::vector<std::uint8_t> k_bytes, v_bytes;
  make_cache(p.k, spec.k, spec.k_gain, k_bytes);
  make_cache(p.v, spec.v, 1.0f, v_bytes);
  host_blocks_.push_back(std::move(k_bytes));
  p.k.data = host_blocks_.back().data();
  const std::size_t k_size = host_blocks_.back().size();
  host_blocks_.push_back(std::move(v_bytes));
  p.v.data = host_blocks_.back().data();
  const std::size_t v_size = host_blocks_.back().size();

  p.softmax_scale =
      spec.softmax_scale != 0.0f ? spec.softmax_scale : 1.0f / std::sqrt(static_cast<float>(D));
  p.causal = spec.causal;
  p.window_left = spec.window;
  p.softcap = spec.softcap;
  p.rope.on = spec.rope;
  p.rope.interleaved = spec.rope_interleaved;
  p.lse_base2 = spec.base2;
  p.num_splits = spec.num_splits;
  p.batch_invariant = spec.batch_invariant;
  auto floats = [&](std::int64_t count, float lo, float hi) {
    std::uniform_real_distribution<float> uniform(lo, hi);
    host_blocks_.emplace_back(count * 4);
    for (std::int64_t i = 0; i < count; ++i) {
      const float x = uniform(rng);
      std::memcpy(host_blocks_.back().data() + 4 * i, &x, 4);
    }
    return FloatArray{reinterpret_cast<const float*>(host_blocks_.back().data()), 1};
  };
  if (spec.alibi) p.alibi_slopes = floats(Hq, 0.001f, 0.3f);
  if (spec.sinks) p.sinks = floats(Hq, -1.0f, 4.0f);
  p.k_scale.value = p.v_scale.value = spec.k == DType::kInt8 ? 0.03f : 1.0f;
  if (spec.scales) {
    p.k_scale.array = floats(spec.num_kv_heads, 0.2f, 1.5f);
    p.v_scale.array = floats(spec.num_kv_heads, 0.2f, 1.5f);
  }
  std::size_t mask_bytes = 0;
  if (spec.mask != MaskKind::kNone) {
    p.draft_mask.kind = spec.mask;
    p.draft_mask.width = p.max_q;
    const bool packed = spec.mask == MaskKind::kPacked;
    const std::int64_t columns = packed ? (p.max_q + 31) / 32 : p.max_q;
    p.draft_mask.col_stride = 1;
    p.draft_mask.row_stride = columns + 1;
    mask_bytes = p.total_q * p.draft_mask.row_stride * (packed ? 4 : 1) + 16;
    host_blocks_.emplace_back(mask_bytes, 0xff);
    std::uint8_t* at = host_blocks_.back().data();
    for (std::int64_t r = 0; r < p.total_q; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        const std::int64_t x = r * p.draft_mask.row_stride + c;
        if (packed) {
          const auto word = static_cast<std::uint32_t>(rng());
          std::memcpy(at + 4 * x, &word, 4);
        } else {
          at[x] = rng() % 2 ? 1 : 0;
        }
      }
    }
    p.draft_mask.data = at;
  }
  if (spec.positions) {
    std::vector<std::int64_t> positions;
    for (std::int64_t b = 0; b < batch; ++b) {
      for (int i = 0; i < spec.m[b]; ++i) positions.push_back(spec.n[b] - spec.m[b] + (i + 1) / 2);
    }
    p.positions = index_array(positions);
  }

  // Prefix keys that row 0 sees and the window hides from row 1 on: NaN for row 0 alone.
  if (spec.poison_hidden) {
    for (std::int64_t b = 0; b < batch; ++b) {
      const SequenceView s = load_sequence(p, b);
      const std::int64_t key = s.n - s.m - spec.window;
      if (s.m < 2 || key < 0) continue;
      const std::int64_t page = page_id(p.pages, s, key / P);
      for (CacheView* c : {&p.k, &p.v}) {
        for (std::int64_t h = 0; h < spec.num_kv_heads; ++h) {
          std::memset(static_cast<std::uint8_t*>(c->data) +
                          (page * c->page_stride + key % P * c->token_stride + h * c->head_stride) *
                              bytes_of(c->dtype),
                      0xff, D * bytes_of(c->dtype));
        }
      }
    }
  }

  // Outputs among sentinels.
  p.out.dtype = spec.out;
  p.out.head_stride = D + kOutPad;
  p.out.row_stride = Hq * p.out.head_stride + kOutPad;
  p.out.seq_stride = p.max_q * p.out.row_stride;
  out_bytes_ = (p.total_q * p.out.row_stride + 64) * bytes_of(spec.out);
  p.lse.head_stride = p.total_q + 1;  // [Hq, total_q] seen as [total_q, Hq]
  p.lse.row_stride = 1;
  lse_count_ = Hq * p.lse.head_stride + 8;

  // The device's copy.
  problem = p;
  DecodeProblem& d = problem;
  auto size_of_block = [&](const void* at) {
    for (const auto& block : host_blocks_) {
      if (block.data() == at) return block.size();
    }
    throw std::logic_error("not a block");
  };
  auto move_up = [&](const void*& at) {
    if (at) at = upload(at, size_of_block(at));
  };
  move_up(d.pages.entries.data);
  move_up(d.pages.indptr.data);
  move_up(d.seq_lens.data);
  move_up(d.cu_seqlens_q.data);
  move_up(d.positions.data);
  move_up(d.draft_mask.data);
  d.q.data = const_cast<void*>(upload(p.q.data, q_bytes));
  d.k.data = const_cast<void*>(upload(p.k.data, k_size));
  d.v.data = const_cast<void*>(upload(p.v.data, v_size));
  for (FloatArray* a : {&d.alibi_slopes, &d.sinks, &d.k_scale.array, &d.v_scale.array}) {
    if (a->data) a->data = static_cast<const float*>(upload(a->data, size_of_block(a->data)));
  }
  std::vector<std::uint8_t> sentinels(std::max(out_bytes_, lse_count_ * 4), kSentinel);
  d.out.data = const_cast<void*>(upload(sentinels.data(), out_bytes_));
  d.lse.data =
      const_cast<float*>(static_cast<const float*>(upload(sentinels.data(), lse_count_ * 4)));
}

DecodeCase::~DecodeCase() {
  for (void* d : device_) cudaFree(d);
}

CaseResult DecodeCase::run() {
  // One workspace for all cases, zeroed once; beyond what has to be zero it is poisoned.
  static void* workspace = nullptr;
  static std::size_t size = 0;
  const std::size_t need = cuda::decode_workspace_bytes(problem, device_info());
  if (need > size) {
    if (workspace) check(cudaFree(workspace));
    size = need + (std::size_t{64} << 20);
    check(cudaMalloc(&workspace, size));
    check(cudaMemset(workspace, 0xff, size));
    check(cudaMemset(workspace, 0,
                     cuda::kWorkspaceAlignment + cuda::decode_zeroed_bytes(device_info())));
  }
  check(cudaMemset(problem.out.data, kSentinel, out_bytes_));
  check(cudaMemset(problem.lse.data, kSentinel, lse_count_ * 4));
  cuda::launch_decode(problem, workspace, need, device_info());
  check(cudaDeviceSynchronize());
  CaseResult r;
  r.out.resize(out_bytes_);
  r.lse.resize(lse_count_);
  check(cudaMemcpy(r.out.data(), problem.out.data, out_bytes_, cudaMemcpyDeviceToHost));
  check(cudaMemcpy(r.lse.data(), problem.lse.data, lse_count_ * 4, cudaMemcpyDeviceToHost));
  return r;
}

std::string DecodeCase::row_bits_at(const CaseResult& r, std::int64_t row) const {
  std::string bits;
  const int size = bytes_of(spec.out);
  for (int h = 0; h < spec.num_q_heads; ++h) {
    const std::int64_t at = row * host_.out.row_stride + h * host_.out.head_stride;
    bits.append(reinterpret_cast<const char*>(r.out.data()) + at * size, spec.head_dim * size);
    bits.append(reinterpret_cast<const char*>(
                    &r.lse[row * host_.lse.row_stride + h * host_.lse.head_stride]),
                4);
  }
  return bits;
}

void DecodeCase::set_single_row(int i, std::int32_t n, const std::int32_t (&cu)[2]) {
  problem.seq_lens.data = upload(&n, 4);
  problem.cu_seqlens_q.data = upload(cu, 8);
  problem.q.data = static_cast<std::uint16_t*>(problem.q.data) + i * problem.q.row_stride;
  problem.total_q = problem.max_q = 1;
}

void DecodeCase::copy_sequence_from(const DecodeCase& other) {
  check(cudaMemcpy(problem.q.data, other.problem.q.data, spec.m[0] * problem.q.row_stride * 2,
                   cudaMemcpyDeviceToDevice));
  const SequenceView to = load_sequence(host_, 0), from = load_sequence(other.host_, 0);
  for (std::int64_t i = 0; i < (spec.n[0] + spec.page_size - 1) / spec.page_size; ++i) {
    const std::int64_t a = page_id(host_.pages, to, i), b = page_id(other.host_.pages, from, i);
    auto copy = [&](const CacheView& x, const CacheView& y) {
      const std::int64_t size = bytes_of(x.dtype);
      check(cudaMemcpy(static_cast<std::uint8_t*>(x.data) + a * x.page_stride * size,
                       static_cast<std::uint8_t*>(y.data) + b * y.page_stride * size,
                       x.page_stride * size, cudaMemcpyDeviceToDevice));
    };
    copy(problem.k, other.problem.k);
    copy(problem.v, other.problem.v);
  }
}

void DecodeCase::break_page(int b, int key) {
  const std::int64_t at =
      load_sequence(host_, b).first_page + key / spec.page_size * host_.pages.entries.stride;
  const auto id = static_cast<std::int32_t>(host_.pages.num_pages);
  auto* entries = static_cast<std::int32_t*>(const_cast<void*>(problem.pages.entries.data));
  check(cudaMemcpy(entries + at, &id, 4, cudaMemcpyHostToDevice));
}

bool DecodeCase::all_nan(const CaseResult& r, int b) const {
  const SequenceView s = load_sequence(host_, b);
  for (int i = 0; i < spec.m[b]; ++i) {
    for (int h = 0; h < spec.num_q_heads; ++h) {
      if (!std::isnan(
              r.lse[(s.first_row + i) * host_.lse.row_stride + h * host_.lse.head_stride])) {
        return false;
      }
      const std::int64_t at =
          row_offset(host_.out, s, i, !spec.uniform) + h * host_.out.head_stride;
      for (int d = 0; d < spec.head_dim; ++d) {
        if (!std::isnan(load_value(spec.out, r.out.data() + (at + d) * bytes_of(spec.out)))) {
          return false;
        }
      }
    }
  }
  return true;
}

std::string DecodeCase::row_bits(const CaseResult& r, int b, int i) const {
  std::string bits;
  const SequenceView s = load_sequence(host_, b);
  const int size = bytes_of(spec.out);
  for (int h = 0; h < spec.num_q_heads; ++h) {
    const std::int64_t at = row_offset(host_.out, s, i, !spec.uniform) + h * host_.out.head_stride;
    bits.append(reinterpret_cast<const char*>(r.out.data()) + at * size, spec.head_dim * size);
    bits.append(reinterpret_cast<const char*>(
                    &r.lse[(s.first_row + i) * host_.lse.row_stride + h * host_.lse.head_stride]),
                4);
  }
  return bits;
}

std::string DecodeCase::compare(const CaseResult& r) const {
  const DecodeProblem& p = host_;
  const int D = spec.head_dim, size = bytes_of(spec.out);
  std::vector<std::uint8_t> written(r.out.size(), 0);
  std::vector<std::uint8_t> lse_written(r.lse.size(), 0);
  struct Task {
    std::int64_t b, i;
    int h;
  };
  std::vector<Task> tasks;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (int i = 0; i < spec.m[b]; ++i) {
      for (int h = 0; h < spec.num_q_heads; ++h) tasks.push_back({b, i, h});
    }
  }
  struct Report {
    std::string text;
    double error = 0, diff = 0, norm = 0;
  };
  const unsigned threads = std::max(1u, std::min(16u, std::thread::hardware_concurrency()));
  std::vector<Report> reports(threads);
  auto work = [&](unsigned t) {
    Report& rep = reports[t];
    std::vector<double> q(D), k(D), acc(D);
    for (std::size_t x = t; x < tasks.size(); x += threads) {
      const Task task = tasks[x];
      const SequenceView s = load_sequence(p, task.b);
      const RowMask row = load_row(p, s, task.i);
      const int hk = task.h / p.group;
      auto rotate = [&](std::vector<double>& y, std::int64_t position) {
        if (!p.rope.on) return;
        for (int pair = 0; pair < D / 2; ++pair) {
          const double angle = std::pow(p.rope.theta, -2.0 * pair / D) / p.rope.scale *
                               static_cast<double>(position);
          double& a = y[rope_first(p.rope, pair)];
          double& b = y[rope_second(p.rope, D, pair)];
          const double c = std::cos(angle), sn = std::sin(angle), a0 = a, b0 = b;
          a = a0 * c - b0 * sn;
          b = b0 * c + a0 * sn;
        }
      };
      const std::int64_t q_at =
          row_offset(p.q, s, task.i, !spec.uniform) + task.h * p.q.head_stride;
      for (int d = 0; d < D; ++d) {
        q[d] = load_value(spec.q, static_cast<const std::uint8_t*>(p.q.data) + 2 * (q_at + d));
      }
      rotate(q, row.position);
      double top = -INFINITY, sum = 0.0, max_v = 0.0;
      std::fill(acc.begin(), acc.end(), 0.0);
      for (std::int64_t key = 0; key < s.n; ++key) {
        if (!visible(p, s, row, key)) continue;
        const std::int64_t page = page_id(p.pages, s, key / spec.page_size);
        auto at = [&](const CacheView& c) {
          return static_cast<const std::uint8_t*>(c.data) +
                 (page * c.page_stride + key % spec.page_size * c.token_stride +
                  hk * c.head_stride) *
                     bytes_of(c.dtype);
        };
        const auto* ka = at(p.k);
        const auto* va = at(p.v);
        for (int d = 0; d < D; ++d) k[d] = load_value(spec.k, ka + d * bytes_of(spec.k));
        rotate(k, key_position(p, s, key));
        double logit = 0.0;
        for (int d = 0; d < D; ++d) logit += q[d] * k[d];
        logit *= static_cast<double>(p.softmax_scale) * p.k_scale[hk];
        if (p.softcap > 0) logit = p.softcap * std::tanh(logit / p.softcap);
        if (p.alibi_slopes) {
          logit +=
              p.alibi_slopes[task.h] * static_cast<double>(key_position(p, s, key) - row.position);
        }
        const double next = std::fmax(top, logit);
        const double factor = top == next ? 1.0 : std::exp(top - next);
        const double w = std::exp(logit - next);
        top = next;
        sum = sum * factor + w;
        for (int d = 0; d < D; ++d) {
          const double v = load_value(spec.v, va + d * bytes_of(spec.v)) * p.v_scale[hk];
          max_v = std::fmax(max_v, std::fabs(v));
          acc[d] = acc[d] * factor + w * v;
        }
      }
      double lse = sum == 0.0 ? -INFINITY : top + std::log(sum);
      const bool empty = sum == 0.0;
      if (p.sinks) {
        const double sink = p.sinks[task.h];
        const double next = std::fmax(top, sink);
        const double f = top == next ? 1.0 : std::exp(top - next);
        sum = sum * f + std::exp(sink - next);
        for (double& a : acc) a *= f;
        lse = next + std::log(sum);
      }
      if (spec.base2) lse /= std::log(2.0);
      const std::int64_t lse_at =
          (s.first_row + task.i) * p.lse.row_stride + task.h * p.lse.head_stride;
      lse_written[lse_at] = 1;
      const double got_lse = r.lse[lse_at];
      const bool rope16 = spec.rope;
      const double lse_tolerance = rope16 ? (spec.q == DType::kFloat16 ? 4e-3 : 3e-2) : 1e-3;
      char text[200];
      if (!(got_lse == lse || (std::isnan(lse) && std::isnan(got_lse)) ||
            std::fabs(got_lse - lse) <= lse_tolerance * (1 + 1e-3 * std::fabs(lse)))) {
        std::snprintf(text, sizeof text, "lse of b %d i %d h %d: got %g, want %g", int(task.b),
                      int(task.i), task.h, got_lse, lse);
        if (rep.text.empty()) rep.text = text;
      }
      const double tolerance =
          (spec.q == DType::kFloat16 && spec.out != DType::kBFloat16 ? 2e-3 : 1.2e-2) *
          (rope16 ? 2 : 1);
      const std::int64_t out_at =
          row_offset(p.out, s, task.i, !spec.uniform) + task.h * p.out.head_stride;
      for (int d = 0; d < D; ++d) {
        const double want = empty ? 0.0 : acc[d] / sum;
        const double got = load_value(spec.out, r.out.data() + (out_at + d) * size);
        std::fill_n(written.begin() + (out_at + d) * size, size, 1);
        const double off = std::fabs(got - want);
        if (std::isfinite(want)) {
          rep.error = std::fmax(rep.error, max_v > 0 ? off / max_v : off);
          rep.diff += off * off;
          rep.norm += want * want;
        }
        const bool same_nan = std::isnan(want) && std::isnan(got);
        if (!(off <= tolerance * max_v || got == want || same_nan)) {
          std::snprintf(text, sizeof text, "out of b %d i %d h %d d %d: got %g, want %g",
                        int(task.b), int(task.i), task.h, d, got, want);
          if (rep.text.empty()) rep.text = text;
        }
      }
    }
  };
  std::vector<std::thread> pool;
  for (unsigned t = 0; t < threads; ++t) pool.emplace_back(work, t);
  for (auto& t : pool) t.join();
  std::string text;
  double diff = 0, norm = 0, error_now = 0;
  for (const Report& rep : reports) {
    if (text.empty()) text = rep.text;
    diff += rep.diff;
    norm += rep.norm;
    error_now = std::fmax(error_now, rep.error);
  }
  auto* self = const_cast<DecodeCase*>(this);
  self->error = error_now;
  self->relative_error = norm > 0 ? std::sqrt(diff / norm) : 0.0;
  for (std::size_t i = 0; i < r.out.size(); ++i) {
    if (!written[i] && r.out[i] != kSentinel && text.empty()) text = "out: wrote past its rows";
  }
  for (std::size_t i = 0; i < r.lse.size(); ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, &r.lse[i], 4);
    if (!lse_written[i] && bits != 0xa5a5a5a5u && text.empty()) text = "lse: wrote past its rows";
  }
  return text;
}

}  // namespace pagedecode::test
