// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pagedecode/backends.h"
#include "pagedecode/cache_ops.h"
#include "pagedecode/decode.h"
#include "pagedecode/error.h"
#include "pagedecode/types.h"
#include "pagedecode/version.h"
