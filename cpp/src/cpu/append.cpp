// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// append: writes new tokens' K and V into their slots, as x / scale in the cache's type.
#include <cstdint>
#include <cstring>

#include "backend.h"
#include "cpu/convert.h"
#include "cpu/slots_util.h"
#include "cpu/thread_pool.h"

namespace pagedecode::cpu {
namespace {

// Elements of K and V below which waking another thread costs more than it saves.
constexpr std::int64_t kSerialElements = 1 << 16;

// One row of D elements: src / scale, rounded.
void store_row(DType from, const char* src, DType to, char* dst, std::int64_t count, float scale) {
  if (from == to && scale == 1.0f) {
    std::memcpy(dst, src, static_cast<std::size_t>(count * bytes_of(from)));
    return;
  }
  with_stored(from, [&](auto in) {
    with_stored(to, [&](auto out) {
      using In = decltype(in);
      using Out = decltype(out);
      for (std::int64_t i = 0; i < count; ++i) {
        typename In::Bits bits;
        std::memcpy(&bits, src + i * static_cast<std::int64_t>(sizeof bits), sizeof bits);
        const typename Out::Bits stored = Out::save(In::load(bits) / scale);
        std::memcpy(dst + i * static_cast<std::int64_t>(sizeof stored), &stored, sizeof stored);
      }
    });
  });
}

// All tokens of one head, in order.
void store_head(const AppendProblem& p, const RowsView& from, const CacheView& to,
                const ScaleView& scale, std::int64_t head) {
  const std::int64_t in_bytes = bytes_of(from.dtype);
  const std::int64_t out_bytes = bytes_of(to.dtype);
  for (std::int64_t t = 0; t < p.tokens; ++t) {
    const std::int64_t slot = p.slots[t];
    if (slot < 0) continue;
    const char* src = static_cast<const char*>(from.data) +
                      (t * from.row_stride + head * from.head_stride) * in_bytes;
    store_row(from.dtype, src, to.dtype, slot_address(to, out_bytes, p.page_size, slot, head),
              p.head_dim, scale[head]);
  }
}

}  // namespace

void append(const AppendProblem& p) {
  check_slots("slots", p.slots, p.tokens, p.num_pages * p.page_size);
  // One item for each head of K and of V, so that of equal slots the last one wins whole.
  auto one_head = [&](std::int64_t item) {
    const std::int64_t head = item / 2;
    if (item % 2 == 0) {
      store_head(p, p.k, p.k_cache, p.k_scale, head);
    } else {
      store_head(p, p.v, p.v_cache, p.v_scale, head);
    }
  };
  const bool serial = p.tokens * p.num_kv_heads * p.head_dim * 2 <= kSerialElements;
  parallel_for(p.num_kv_heads * 2, serial ? 1 : max_threads(), one_head);
}

}  // namespace pagedecode::cpu
