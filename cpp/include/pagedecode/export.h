// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(_WIN32)
#define PAGEDECODE_API
#else
#define PAGEDECODE_API __attribute__((visibility("default")))
#endif
