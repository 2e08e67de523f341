// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/device.h"

namespace pagedecode::cuda {

// What the library needs to know of a GPU, asked once. Throws Unsupported where the backend does
// not run on it, with the sentence that says why.
const DeviceInfo& require_device(int index);

}  // namespace pagedecode::cuda
