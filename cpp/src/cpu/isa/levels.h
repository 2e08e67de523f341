// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cpu/kernel.h"

namespace pagedecode::cpu {

// Each is defined in decode_<level>.cpp, where the architecture has it.
extern const Level kLevelBaseline;
extern const Level kLevelAvx2;
extern const Level kLevelAvx512;
extern const Level kLevelAvx512Bf16;
extern const Level kLevelAmx;

}  // namespace pagedecode::cpu
