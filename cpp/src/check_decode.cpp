// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "check_decode.h"

#include <string>

#include "check_cache.h"
#include "check_contents.h"
#include "check_util.h"

namespace pagedecode {
namespace {

constexpr std::int64_t kMaxGroup = 128;

void check_q(const DecodeArgs& a, DecodeProblem* p) {
  const Tensor& q = a.q;
  check_dtype("q", q, {DType::kFloat16, DType::kBFloat16, DType::kFloat32});
  const bool ragged = a.cu_seqlens_q.has_value();
  if (q.ndim != (ragged ? 3 : 4)) {
    throw_argument("q", "shape " + shape_text(q),
                   ragged ? "[total_q, Hq, D], as cu_seqlens_q is given"
                          : "[B, m, Hq, D], or [total_q, Hq, D] with cu_seqlens_q");
  }
  const int heads_dim = q.ndim - 2;
  check_head_dim("q", q.shape[q.ndim - 1]);
  p->device = q.device;
  p->head_dim = static_cast<std::int32_t>(q.shape[q.ndim - 1]);
  check_rows("q", q);
  if (p->device.type == DeviceType::kCuda && q.dtype == DType::kFloat32) {
    throw_unsupported("q", "dtype float32 on CUDA", "float16 or bfloat16 there");
  }

  if (ragged) {
    p->total_q = q.shape[0];
  } else {
    p->batch = q.shape[0];
    p->uniform_q = q.shape[1];
    p->total_q = saturating_product(q.shape[0], q.shape[1]);
    p->q.seq_stride = stride_of(q, 0);
  }
  if (p->total_q > kMaxCount || p->batch > kMaxCount || p->uniform_q > kMaxCount) {
    throw_unsupported("q", "shape " + shape_text(q), "fewer than 2^31 rows");
  }
  p->q.data = q.data;
  p->q.dtype = q.dtype;
  p->q.row_stride = stride_of(q, heads_dim - 1);
  p->q.head_stride = stride_of(q, heads_dim);
}

void check_heads(const DecodeArgs& a, std::int64_t num_kv_heads, DecodeProblem* p) {
  const std::int64_t heads = a.q.shape[a.q.ndim - 2];
  if (heads < 1 || heads % num_kv_heads != 0) {
    throw_argument("q", std::to_string(heads) + " heads",
                   "a multiple of the " + std::to_string(num_kv_heads) + " KV heads of k_cache");
  }
  const std::int64_t group = heads / num_kv_heads;
  if (group > kMaxGroup) {
    throw_unsupported("q", std::to_string(group) + " query heads for each KV head",
                      "from 1 to " + std::to_string(kMaxGroup));
  }
  if (heads > kMaxCount) {
    throw_unsupported("q", std::to_string(heads) + " heads", "fewer than 2^31");
  }
  p->num_q_heads = static_cast<std::int32_t>(heads);
  p->num_kv_heads = static_cast<std::int32_t>(num_kv_heads);
  p->group = static_cast<std::int32_t>(group);
}

// A cache type that the CPU reads, but CUDA not beside this q.
void check_cuda_cache_type(const char* name, const Tensor& cache, const Tensor& q) {
  if (cache.device.type != DeviceType::kCuda) return;
  if (size_of(cache.dtype) == 1 || cache.dtype == q.dtype) return;
  throw_unsupported(name, std::string("dtype ") + name_of(cache.dtype) + " on CUDA",
                    std::string("that of q (") + name_of(q.dtype) +
                        "), float8_e4m3fn, float8_e5m2 or int8 there");
}

void check_caches(const DecodeArgs& a, DecodeProblem* p) {
  const CacheShape shape =
      check_cache_pair(a.k_cache, a.v_cache, a.kv_layout, p->head_dim, p->device, &p->k, &p->v);
  check_cuda_cache_type("k_cache", a.k_cache, a.q);
  check_cuda_cache_type("v_cache", a.v_cache, a.q);
  p->page_size = shape.page_size;
  p->pages.num_pages = shape.num_pages;
  check_heads(a, shape.num_kv_heads, p);
}

void check_sequences(const DecodeArgs& a, DecodeProblem* p) {
  if (a.cu_seqlens_q) {
    check_index_tensor("seq_lens", a.seq_lens, {{"B", kAny}}, p->device);
    p->batch = a.seq_lens.shape[0];
    if (p->batch >= kMaxCount) {
      throw_unsupported("seq_lens", "shape " + shape_text(a.seq_lens), "fewer than 2^31 sequences");
    }
    p->cu_seqlens_q =
        check_indices("cu_seqlens_q", *a.cu_seqlens_q, {"B + 1", p->batch + 1}, p->device);
  }
  p->seq_lens = check_indices("seq_lens", a.seq_lens, {"B", p->batch}, p->device);

  p->max_q = p->uniform_q >= 0 ? p->uniform_q : p->total_q;
  p->max_q_known = p->uniform_q >= 0 || a.max_seqlen_q.has_value();
  if (!a.max_seqlen_q) return;
  const std::int64_t given = *a.max_seqlen_q;
  if (given < 0) throw_argument("max_seqlen_q", std::to_string(given), "0 or more");
  if (p->uniform_q > given && p->batch > 0) {
    throw_argument("max_seqlen_q", std::to_string(given),
                   "at least " + std::to_string(p->uniform_q) + ", the rows of each sequence of q");
  }
  if (given < p->max_q) p->max_q = given;
}

}  // namespace

PageTable check_page_table(const std::optional<Tensor>& table, const std::optional<Tensor>& indptr,
                           const std::optional<Tensor>& indices, std::int64_t batch,
                           Device device) {
  if (table && (indptr || indices)) {
    throw_argument("block_table", "a table and a page list", "one of them");
  }
  PageTable pages;
  if (table) {
    check_index_tensor("block_table", *table, {{"B", batch}, {"max_pages", kAny}}, device);
    pages.entries = {table->data, stride_of(*table, 1), table->dtype == DType::kInt64};
    pages.row_stride = stride_of(*table, 0);
    pages.width = table->shape[1];
  } else if (indptr && indices) {
    pages.indptr = check_indices("block_table.indptr", *indptr, {"B + 1", batch + 1}, device);
    pages.entries = check_indices("block_table.indices", *indices, {"num_indices", kAny}, device);
    pages.width = indices->shape[0];
  } else {
    throw_argument("block_table", "none", "a table [B, max_pages], or a page list");
  }
  if (pages.width > kMaxCount) {
    throw_unsupported("block_table", std::to_string(pages.width) + " entries", "fewer than 2^31");
  }
  return pages;
}

DecodeProblem check_decode(const DecodeArgs& a, bool needs_out) {
  DecodeProblem p;
  check_q(a, &p);
  check_caches(a, &p);
  check_sequences(a, &p);
  const std::int64_t num_pages = p.pages.num_pages;
  p.pages = check_page_table(a.block_table, a.page_indptr, a.page_indices, p.batch, p.device);
  p.pages.num_pages = num_pages;
  check_options(a, &p);
  check_outputs(a, needs_out, &p);
  if (p.device.type == DeviceType::kCpu && a.stream != nullptr) {
    throw_argument("stream", "a stream", "none on the CPU");
  }
  p.stream = a.stream;
  return p;
}

void check_workspace(const DecodeArgs& a, std::size_t needed, DecodeProblem* p) {
  constexpr std::uintptr_t kAlignment = 16;  // of the widest element that a backend puts there
  const char* name = "workspace";
  const Tensor& w = *a.workspace;
  check_dtype(name, w, {DType::kUInt8});
  check_shape(name, w, {{"bytes", kAny}});
  check_device(name, w, p->device);
  check_writable(name, w);
  if (stride_of(w, 0) != 1 && w.shape[0] > 1) {
    throw_argument(name, "stride " + std::to_string(w.strides[0]), "contiguous bytes");
  }
  const auto given = static_cast<std::size_t>(w.shape[0]);
  if (given < needed) {
    throw_argument(name, std::to_string(given) + " bytes",
                   "at least " + std::to_string(needed) + ", as workspace_size says");
  }
  if (given > 0) check_alignment(name, w, kAlignment);
  p->workspace = w.data;
  p->workspace_bytes = given;
}

}  // namespace pagedecode
