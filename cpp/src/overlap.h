// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Do two strided views share a byte? Does one view reach a byte twice? Views of one buffer that
// interleave (columns of one matrix, K and V of one page) are told apart exactly.
#pragma once

#include "pagedecode/types.h"

namespace pagedecode {

enum class Overlap { kNo, kYes, kMaybe };  // kMaybe: the search was given up

// Views on different devices, or with no elements, never overlap.
Overlap overlap(const Tensor& a, const Tensor& b);
Overlap self_overlap(const Tensor& t);

}  // namespace pagedecode
