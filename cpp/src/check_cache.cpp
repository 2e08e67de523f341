// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "check_cache.h"

#include <initializer_list>
#include <string>

#include "check_util.h"

namespace pagedecode {
namespace {

constexpr std::int64_t kMaxHeadDim = 256;

void check_cache_type(const char* name, const Tensor& t) {
  if (t.dtype == DType::kUInt8) {
    throw_type(name, "dtype uint8", "kv_dtype to name the type that its bytes hold");
  }
  check_dtype(name, t,
              {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat8E4M3,
               DType::kFloat8E5M2, DType::kInt8});
}

CacheView check_cache(const char* name, const Tensor& t, KVLayout layout, const CacheShape& want,
                      const char* head_dim_name, Device device) {
  check_cache_type(name, t);
  const Dim pages{"num_pages", want.num_pages};
  const Dim tokens{"P", want.page_size};
  const Dim heads{"Hkv", want.num_kv_heads};
  const Dim dim{head_dim_name, want.head_dim};
  const bool nhd = layout == KVLayout::kNHD;
  if (nhd) {
    check_shape(name, t, {pages, tokens, heads, dim});
  } else {
    check_shape(name, t, {pages, heads, tokens, dim});
  }
  check_device(name, t, device);
  check_rows(name, t);
  CacheView view;
  view.data = t.data;
  view.dtype = t.dtype;
  view.page_stride = stride_of(t, 0);
  view.token_stride = stride_of(t, nhd ? 1 : 2);
  view.head_stride = stride_of(t, nhd ? 2 : 1);
  return view;
}

}  // namespace

void check_head_dim(const char* name, std::int64_t head_dim) {
  if (head_dim >= 8 && head_dim <= kMaxHeadDim && head_dim % 8 == 0) return;
  throw_unsupported(name, "head dim " + std::to_string(head_dim), "a multiple of 8 from 8 to 256");
}

CacheShape check_cache_pair(const Tensor& k_cache, const Tensor& v_cache, KVLayout layout,
                            std::int64_t head_dim, Device device, CacheView* k, CacheView* v) {
  const bool nhd = layout == KVLayout::kNHD;
  CacheShape shape{kAny, kAny, kAny, head_dim};
  const char* head_dim_name = head_dim == kAny ? "D" : "D of q";
  *k = check_cache("k_cache", k_cache, layout, shape, head_dim_name, device);
  shape.num_pages = k_cache.shape[0];
  shape.page_size = k_cache.shape[nhd ? 1 : 2];
  shape.num_kv_heads = k_cache.shape[nhd ? 2 : 1];
  shape.head_dim = k_cache.shape[3];
  check_head_dim("k_cache", shape.head_dim);
  if (shape.page_size < 1 || shape.num_kv_heads < 1) {
    throw_argument("k_cache", "shape " + shape_text(k_cache), "a page size and heads of 1 or more");
  }
  if (shape.page_size > kMaxCount || shape.num_kv_heads > kMaxCount) {
    throw_unsupported("k_cache", "shape " + shape_text(k_cache),
                      "a page size and heads below 2^31");
  }
  *v = check_cache("v_cache", v_cache, layout, shape, head_dim_name, device);
  return shape;
}

void check_written_caches(const Tensor& k_cache, const Tensor& v_cache, bool one_memory) {
  check_writable("k_cache", k_cache);
  check_writable("v_cache", v_cache);
  check_self_overlap("k_cache", k_cache);
  check_self_overlap("v_cache", v_cache);
  if (!one_memory) check_overlap("v_cache", v_cache, "k_cache", k_cache);
}

}  // namespace pagedecode
