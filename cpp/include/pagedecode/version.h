// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#pragma once

// The one source of the version: CMake and the Python build read these three lines.
#define PAGEDECODE_VERSION_MAJOR 0
#define PAGEDECODE_VERSION_MINOR 1
#define PAGEDECODE_VERSION_PATCH 0
