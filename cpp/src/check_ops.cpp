// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "check_ops.h"

#include <string>

#include "check_cache.h"
#include "check_decode.h"
#include "check_util.h"

namespace pagedecode {
namespace {

void check_stream(Device device, const void* stream) {
  if (device.type == DeviceType::kCpu && stream != nullptr) {
    throw_argument("stream", "a stream", "none on the CPU");
  }
}

RowsView check_new_rows(const char* name, const Tensor& t, const AppendProblem& p) {
  check_dtype(name, t, {DType::kFloat16, DType::kBFloat16, DType::kFloat32});
  check_shape(name, t, {{"T", p.tokens}, {"Hkv", p.num_kv_heads}, {"D", p.head_dim}});
  check_device(name, t, p.device);
  check_rows(name, t);
  RowsView view;
  view.data = t.data;
  view.dtype = t.dtype;
  view.row_stride = stride_of(t, 0);
  view.head_stride = stride_of(t, 1);
  return view;
}

void check_append_type(const char* name, const Tensor& cache) {
  if (cache.device.type == DeviceType::kCuda && cache.dtype == DType::kFloat32) {
    throw_unsupported(name, "dtype float32 on CUDA",
                      "float16, bfloat16, float8_e4m3fn, float8_e5m2 or int8 there");
  }
}

// One latent cache, given as K and as V: both copies of a slot are the same bits.
bool same_memory(const CacheView& k, const CacheView& v) {
  return k.data == v.data && k.dtype == v.dtype && k.page_stride == v.page_stride &&
         k.token_stride == v.token_stride && k.head_stride == v.head_stride;
}

// Move copies bits: the bytes of a uint8 cache need no name.
Tensor with_named_bytes(Tensor t) {
  if (t.dtype == DType::kUInt8) t.dtype = DType::kInt8;
  return t;
}

}  // namespace

AppendProblem check_append(const AppendArgs& a) {
  AppendProblem p;
  p.device = a.k_cache.device;
  const CacheShape shape =
      check_cache_pair(a.k_cache, a.v_cache, a.kv_layout, kAny, p.device, &p.k_cache, &p.v_cache);
  check_written_caches(a.k_cache, a.v_cache, false);
  check_append_type("k_cache", a.k_cache);
  check_append_type("v_cache", a.v_cache);
  p.num_pages = shape.num_pages;
  p.page_size = shape.page_size;
  p.num_kv_heads = static_cast<std::int32_t>(shape.num_kv_heads);
  p.head_dim = static_cast<std::int32_t>(shape.head_dim);

  p.tokens = a.k.ndim > 0 ? a.k.shape[0] : 0;
  p.k = check_new_rows("k", a.k, p);
  p.v = check_new_rows("v", a.v, p);
  p.slots = check_indices("slots", a.slots, {"T", p.tokens}, p.device);
  p.k_scale = check_scale("k_scale", a.k_scale, p.num_kv_heads, p.device);
  p.v_scale = check_scale("v_scale", a.v_scale, p.num_kv_heads, p.device);

  const struct {
    const char* name;
    const Tensor& cache;
  } caches[] = {{"k_cache", a.k_cache}, {"v_cache", a.v_cache}};
  for (const auto& c : caches) {
    check_overlap(c.name, c.cache, "k", a.k);
    check_overlap(c.name, c.cache, "v", a.v);
    check_overlap(c.name, c.cache, "slots", a.slots);
    if (a.k_scale.array) check_overlap(c.name, c.cache, "k_scale", *a.k_scale.array);
    if (a.v_scale.array) check_overlap(c.name, c.cache, "v_scale", *a.v_scale.array);
  }
  check_stream(p.device, a.stream);
  p.stream = a.stream;
  return p;
}

SlotsProblem check_slots(const SlotsArgs& a) {
  SlotsProblem p;
  p.device = a.seq_lens.device;
  check_index_tensor("seq_lens", a.seq_lens, {{"B", kAny}}, p.device);
  p.batch = a.seq_lens.shape[0];
  p.seq_lens = check_indices("seq_lens", a.seq_lens, {"B", p.batch}, p.device);
  p.cu_seqlens_q = check_indices("cu_seqlens_q", a.cu_seqlens_q, {"B + 1", p.batch + 1}, p.device);
  if (a.page_size < 1 || a.page_size > kMaxCount) {
    throw_argument("page_size", std::to_string(a.page_size), "1 or more (below 2^31)");
  }
  p.page_size = a.page_size;
  p.pages = check_page_table(a.block_table, a.page_indptr, a.page_indices, p.batch, p.device);

  check_dtype("out", a.out, {DType::kInt64});
  check_shape("out", a.out, {{"total_q", kAny}});
  check_device("out", a.out, p.device);
  check_writable("out", a.out);
  check_data("out", a.out);
  check_self_overlap("out", a.out);
  check_overlap("out", a.out, "seq_lens", a.seq_lens);
  check_overlap("out", a.out, "cu_seqlens_q", a.cu_seqlens_q);
  for (const auto* t : {&a.block_table, &a.page_indptr, &a.page_indices}) {
    if (*t) check_overlap("out", a.out, "block_table", **t);
  }
  p.total_q = a.out.shape[0];
  p.out = static_cast<std::int64_t*>(a.out.data);
  p.out_stride = stride_of(a.out, 0);
  check_stream(p.device, a.stream);
  p.stream = a.stream;
  return p;
}

MoveProblem check_move(const MoveArgs& a) {
  MoveProblem p;
  p.device = a.k_cache.device;
  const Tensor k = with_named_bytes(a.k_cache);
  const Tensor v = with_named_bytes(a.v_cache);
  const CacheShape shape =
      check_cache_pair(k, v, a.kv_layout, kAny, p.device, &p.k_cache, &p.v_cache);
  check_written_caches(k, v, same_memory(p.k_cache, p.v_cache));
  p.num_pages = shape.num_pages;
  p.page_size = shape.page_size;
  p.num_kv_heads = static_cast<std::int32_t>(shape.num_kv_heads);
  p.head_dim = static_cast<std::int32_t>(shape.head_dim);

  p.src_slots = check_indices("src_slots", a.src_slots, {"pairs", kAny}, p.device);
  p.pairs = a.src_slots.shape[0];
  p.dst_slots = check_indices("dst_slots", a.dst_slots, {"len(src_slots)", p.pairs}, p.device);
  check_overlap("k_cache", k, "src_slots", a.src_slots);
  check_overlap("k_cache", k, "dst_slots", a.dst_slots);
  check_overlap("v_cache", v, "src_slots", a.src_slots);
  check_overlap("v_cache", v, "dst_slots", a.dst_slots);
  check_stream(p.device, a.stream);
  p.stream = a.stream;
  return p;
}

}  // namespace pagedecode
