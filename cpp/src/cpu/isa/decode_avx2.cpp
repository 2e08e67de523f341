// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/isa/simd_avx2.h"
// (first the vectors, then what uses them)
#include "cpu/isa/level.h"
#include "cpu/isa/levels.h"

namespace pagedecode::cpu {
const Level kLevelAvx2 = {"avx2", &fma_variant, &store_row};

}  // namespace pagedecode::cpu
