// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "problem.h"

namespace pagedecode::cuda {

// Tokens of a box: the largest power of two up to 64 that divides the page (kTmaTokens or more).
inline int box_tokens(std::int64_t page_size) {
  int tokens = 64;
  while (page_size % tokens != 0) tokens /= 2;
  return tokens;
}

// The map of K's or V's pool, coordinates (d, head, token, page); boxes of wgmma_part_bytes of d by
// box_tokens, in shared memory with a swizzle as wide. A box outside the pool is zeros.
cudaError_t encode_tensor_map(const DecodeProblem& p, const CacheView& cache, CUtensorMap* map);

}  // namespace pagedecode::cuda
