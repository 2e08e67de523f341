// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

namespace pagedecode::bindings {

void bind_errors(nanobind::module_& m);
void bind_decode(nanobind::module_& m);
void bind_ops(nanobind::module_& m);
void bind_backends(nanobind::module_& m);

}  // namespace pagedecode::bindings
