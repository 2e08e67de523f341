// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// DLTensor and NumPy's array interface -> Tensor: the parts that call no Python library.
#pragma once

#include <dlpack/dlpack.h>
#include <nanobind/nanobind.h>

#include "pagedecode/types.h"

namespace pagedecode::bindings {

// TypeError for a dtype or device that pagedecode has no name for; strides NULL means compact.
Tensor from_dltensor(const DLTensor& t, const char* name);
// A numpy.ndarray or a subclass, with ml_dtypes types too.
Tensor from_numpy(nanobind::handle array, const char* name);

}  // namespace pagedecode::bindings
