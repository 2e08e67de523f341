// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Where a slot is, and the check that all slots lie in the pool.
#pragma once

#include <cstdint>
#include <string>

#include "pagedecode/error.h"
#include "problem.h"

namespace pagedecode::cpu {

// Address of (slot, head) in a cache of elements of `bytes` bytes.
inline char* slot_address(const CacheView& c, std::int64_t bytes, std::int64_t page_size,
                          std::int64_t slot, std::int64_t head) {
  const std::int64_t at =
      slot / page_size * c.page_stride + slot % page_size * c.token_stride + head * c.head_stride;
  return static_cast<char*>(c.data) + at * bytes;
}

// Throws InvalidArgument where a slot is at or past the end of the pool; negative ones are fine.
inline void check_slots(const char* name, const IndexArray& slots, std::int64_t count,
                        std::int64_t pool) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (slots[i] >= pool) {
      throw InvalidArgument(std::string(name) + ": got slot " + std::to_string(slots[i]) +
                            " at index " + std::to_string(i) + ", want less than " +
                            std::to_string(pool) + " (num_pages * page_size)");
    }
  }
}

}  // namespace pagedecode::cpu
