// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pagedecode/export.h"

namespace pagedecode {

struct BackendStatus {
  bool built = false;
  bool runs = false;
  std::string why;  // empty if it runs
};

struct Backends {
  BackendStatus cpu;
  BackendStatus cuda;
};

PAGEDECODE_API Backends backends();

// Threads of the CPU backend's pool; also PAGEDECODE_NUM_THREADS. InvalidArgument unless
// 1 to 1024.
PAGEDECODE_API void set_num_threads(int n);
PAGEDECODE_API int num_threads();
// The instruction level that the CPU backend runs at: "baseline", "avx2", "avx512",
// "avx512bf16", "amx".
PAGEDECODE_API std::string cpu_isa();

}  // namespace pagedecode
