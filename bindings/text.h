// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace pagedecode::bindings {

// str(object).
inline std::string text_of(nanobind::handle object) { return nanobind::str(object).c_str(); }

// "Tensor" for a torch.Tensor.
inline std::string class_of(nanobind::handle object) {
  return text_of(object.type().attr("__name__"));
}

}  // namespace pagedecode::bindings
