// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "pagedecode/version.h"
