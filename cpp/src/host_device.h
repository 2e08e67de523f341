// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__CUDACC__)
#define PD_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define PD_HOST_DEVICE inline
#endif
