// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Which instruction level runs: the highest that this machine has, or the one that PAGEDECODE_ISA
// names. Decided once.
#include "cpu/levels.h"

#include <cstdlib>
#include <string>

#if defined(PAGEDECODE_ISA_AMX)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

#include "cpu/isa/levels.h"
#include "pagedecode/backends.h"
#include "pagedecode/error.h"

namespace pagedecode {
namespace cpu {
namespace {

bool runs_anywhere() { return true; }

// NOTE: these run on any machine, so they must not stand in a file that is compiled for a level.
#if defined(PAGEDECODE_ISA_AVX2)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}
#endif
#if defined(PAGEDECODE_ISA_AVX512)
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
#endif
#if defined(PAGEDECODE_ISA_AVX512BF16)
bool has_avx512bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }
#endif
#if defined(PAGEDECODE_ISA_AMX)
bool has_amx() {
#if defined(__linux__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!has_avx512bf16() || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  const bool tiles = (d >> 24 & 1) && (d >> 22 & 1);  // AMX-TILE, AMX-BF16
  // Linux gives the tiles to a process that asks: ARCH_REQ_XCOMP_PERM, XTILEDATA.
  return tiles && syscall(SYS_arch_prctl, 0x1023, 18) == 0;
#else
  return false;
#endif
}
#endif

struct Entry {
  const Level* level;
  bool (*runs)();
};

// Lowest first.
constexpr Entry kLevels[] = {
    {&kLevelBaseline, &runs_anywhere},
#if defined(PAGEDECODE_ISA_AVX2)
    {&kLevelAvx2, &has_avx2},
#endif
#if defined(PAGEDECODE_ISA_AVX512)
    {&kLevelAvx512, &has_avx512},
#endif
#if defined(PAGEDECODE_ISA_AVX512BF16)
    {&kLevelAvx512Bf16, &has_avx512bf16},
#endif
#if defined(PAGEDECODE_ISA_AMX)
    {&kLevelAmx, &has_amx},
#endif
};

std::string names(bool running_only) {
  std::string text;
  for (const Entry& e : kLevels) {
    if (running_only && !e.runs()) continue;
    text += (text.empty() ? "" : ", ") + std::string(e.level->name);
  }
  return text;
}

const Level& choose_level() {
  const char* wanted = std::getenv("PAGEDECODE_ISA");
  if (wanted == nullptr || *wanted == '\0') return *levels_that_run().back();
  for (const Entry& e : kLevels) {
    if (e.level->name != std::string(wanted)) continue;
    if (e.runs()) return *e.level;
    throw InvalidArgument("PAGEDECODE_ISA: got '" + std::string(wanted) +
                          "', which this machine lacks; want one of " + names(true));
  }
  throw InvalidArgument("PAGEDECODE_ISA: got '" + std::string(wanted) + "', want one of " +
                        names(false));
}

}  // namespace

std::vector<const Level*> levels_that_run() {
  std::vector<const Level*> found;
  for (const Entry& e : kLevels) {
    if (e.runs()) found.push_back(e.level);
  }
  return found;
}

const Level& active_level() {
  // NOTE: where this throws it is tried, and throws, again next time.
  static const Level& level = choose_level();
  return level;
}

}  // namespace cpu

std::string cpu_isa() { return cpu::active_level().name; }

}  // namespace pagedecode
