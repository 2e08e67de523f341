// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// move: copies cache slots bit for bit. All sources are read into one buffer first, for a slot may
// be the source of one pair and the destination of another.
#include <cstdint>
#include <cstring>
#include <vector>

#include "backend.h"
#include "cpu/convert.h"
#include "cpu/slots_util.h"

namespace pagedecode::cpu {

void move(const MoveProblem& p) {
  const std::int64_t pool = p.num_pages * p.page_size;
  check_slots("src_slots", p.src_slots, p.pairs, pool);
  check_slots("dst_slots", p.dst_slots, p.pairs, pool);

  const CacheView* const caches[2] = {&p.k_cache, &p.v_cache};
  std::int64_t live = 0;
  for (std::int64_t i = 0; i < p.pairs; ++i) live += p.src_slots[i] >= 0 && p.dst_slots[i] >= 0;
  const std::int64_t token_bytes =
      p.num_kv_heads * p.head_dim * (bytes_of(p.k_cache.dtype) + bytes_of(p.v_cache.dtype));
  std::vector<char> buffer(static_cast<std::size_t>(live * token_bytes));

  // Pass 0 reads every source, pass 1 writes every destination, in the same order.
  for (int pass = 0; pass < 2; ++pass) {
    char* at = buffer.data();
    for (std::int64_t i = 0; i < p.pairs; ++i) {
      const std::int64_t src = p.src_slots[i];
      const std::int64_t dst = p.dst_slots[i];
      if (src < 0 || dst < 0) continue;
      for (const CacheView* c : caches) {
        const std::int64_t bytes = bytes_of(c->dtype);
        const auto row = static_cast<std::size_t>(p.head_dim * bytes);
        for (std::int64_t h = 0; h < p.num_kv_heads; ++h) {
          if (pass == 0) {
            std::memcpy(at, slot_address(*c, bytes, p.page_size, src, h), row);
          } else {
            std::memcpy(slot_address(*c, bytes, p.page_size, dst, h), at, row);
          }
          at += row;
        }
      }
    }
  }
}

}  // namespace pagedecode::cpu
