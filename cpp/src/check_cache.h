// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The pair of caches: shapes, types, layout and strides; what decode, append and move share.
#pragma once

#include "pagedecode/types.h"
#include "problem.h"

namespace pagedecode {

struct CacheShape {
  std::int64_t num_pages;
  std::int64_t page_size;
  std::int64_t num_kv_heads;
  std::int64_t head_dim;
};

// Unsupported unless a multiple of 8 up to 256.
void check_head_dim(const char* name, std::int64_t head_dim);
// `head_dim` is q's; kAny takes that of k_cache.
CacheShape check_cache_pair(const Tensor& k_cache, const Tensor& v_cache, KVLayout layout,
                            std::int64_t head_dim, Device device, CacheView* k, CacheView* v);
// Caches that are written: writable, no byte reached twice, K and V apart
// unless they are `one_memory`, which is for the caller to know.
void check_written_caches(const Tensor& k_cache, const Tensor& v_cache, bool one_memory);

}  // namespace pagedecode
