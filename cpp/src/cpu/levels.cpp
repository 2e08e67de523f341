// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Which instruction level runs: the highest that this machine has, or the one that PAGEDECODE_ISA
// names. Decided once.
#include <cstdlib>
#include <string>

#include "cpu/isa/levels.h"
#include "cpu/kernel.h"
#include "pagedecode/backends.h"
#include "pagedecode/error.h"

namespace pagedecode {
namespace cpu {
namespace {

const Level* const kLevels[] = {
    &kLevelBaseline,
#if defined(PAGEDECODE_ISA_AVX2)
    &kLevelAvx2,
#endif
#if defined(PAGEDECODE_ISA_AVX512)
    &kLevelAvx512,
#endif
#if defined(PAGEDECODE_ISA_AVX512BF16)
    &kLevelAvx512Bf16,
#endif
#if defined(PAGEDECODE_ISA_AMX)
    &kLevelAmx,
#endif
};

std::string names(bool running_only) {
  std::string text;
  for (const Level* level : kLevels) {
    if (running_only && !level->runs()) continue;
    text += (text.empty() ? "" : ", ") + std::string(level->name);
  }
  return text;
}

const Level& choose_level() {
  const char* wanted = std::getenv("PAGEDECODE_ISA");
  const Level* best = kLevels[0];
  if (wanted == nullptr || *wanted == '\0') {
    for (const Level* level : kLevels) {
      if (level->runs()) best = level;
    }
    return *best;
  }
  for (const Level* level : kLevels) {
    if (level->name != std::string(wanted)) continue;
    if (level->runs()) return *level;
    throw InvalidArgument("PAGEDECODE_ISA: got '" + std::string(wanted) +
                          "', which this machine lacks; want one of " + names(true));
  }
  throw InvalidArgument("PAGEDECODE_ISA: got '" + std::string(wanted) + "', want one of " +
                        names(false));
}

}  // namespace

const Level* const* levels(int* count) {
  *count = static_cast<int>(sizeof kLevels / sizeof kLevels[0]);
  return kLevels;
}

const Level& active_level() {
  // NOTE: where this throws it is tried, and throws, again next time.
  static const Level& level = choose_level();
  return level;
}

}  // namespace cpu

std::string cpu_isa() { return cpu::active_level().name; }

}  // namespace pagedecode
