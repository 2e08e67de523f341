// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>

NB_MODULE(_core, m) { m.doc() = "pagedecode: the C++ core"; }
