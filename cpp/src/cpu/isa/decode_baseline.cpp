// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/isa/simd_baseline.h"
// (first the vectors, then what uses them)
#include "cpu/isa/level.h"
#include "cpu/isa/levels.h"

namespace pagedecode::cpu {
namespace {

bool runs() { return true; }

}  // namespace

const Level kLevelBaseline = {"baseline", &runs, &fma_variant, &store_row};

}  // namespace pagedecode::cpu
