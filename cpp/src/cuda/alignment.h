// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>

#include "pagedecode/types.h"

namespace pagedecode::cuda {

// The largest power of two, at most `most`, that divides an address and byte strides.
inline std::int64_t common_alignment(const void* data, std::initializer_list<std::int64_t> strides,
                                     std::int64_t most) {
  std::uint64_t bits = reinterpret_cast<std::uintptr_t>(data) | static_cast<std::uint64_t>(most);
  for (const std::int64_t stride : strides) bits |= static_cast<std::uint64_t>(stride);
  return static_cast<std::int64_t>(bits & (~bits + 1));
}

// Whether every eight elements from a row's start on may be read or written as a vector: 16 bytes
// at a time, 8 for 1-byte types. `strides` count elements.
inline bool vectors_aligned(const void* data, DType dtype,
                            std::initializer_list<std::int64_t> strides) {
  const std::int64_t size = size_of(dtype);
  const std::int64_t want = size == 1 ? 8 : 16;
  if (common_alignment(data, {}, want) != want) return false;
  for (const std::int64_t stride : strides) {
    if (stride * size % want != 0) return false;
  }
  return true;
}

}  // namespace pagedecode::cuda
