// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pagedecode::cuda {

// What a policy and a launch need to know of a GPU. Read once for each device.
struct DeviceInfo {
  int ordinal = 0;
  int sm_count = 0;
  int cc_major = 0;
  int cc_minor = 0;
  int max_smem_optin = 0;  // bytes of shared memory that one block may have
};

}  // namespace pagedecode::cuda
