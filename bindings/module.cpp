// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>

#include <string>

#include "calls.h"
#include "gil.h"
#include "pagedecode/version.h"

NB_MODULE(_core, m) {
  m.doc() = "pagedecode: the C++ core";
  const std::string version = std::to_string(PAGEDECODE_VERSION_MAJOR) + "." +
                              std::to_string(PAGEDECODE_VERSION_MINOR) + "." +
                              std::to_string(PAGEDECODE_VERSION_PATCH);
  m.attr("__version__") = version.c_str();
  pagedecode::bindings::bind_errors(m);
  pagedecode::bindings::bind_gil(m);
  pagedecode::bindings::bind_decode(m);
  pagedecode::bindings::bind_ops(m);
  pagedecode::bindings::bind_backends(m);
}
