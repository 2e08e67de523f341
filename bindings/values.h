// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Python values -> options. What is of the wrong type is a TypeError that names the argument, not
// nanobind's list of overloads.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>

#include "arrays.h"
#include "pagedecode/decode.h"

namespace pagedecode::bindings {

bool to_bool(nanobind::handle value, const char* name);
// InvalidArgument for what does not fit 64 bits.
std::int64_t to_int(nanobind::handle value, const char* name);
double to_double(nanobind::handle value, const char* name, const char* want = "a number");
std::optional<std::int64_t> to_optional_int(nanobind::handle value, const char* name);
std::optional<double> to_optional_double(nanobind::handle value, const char* name);
KVLayout to_layout(nanobind::handle value);
LseBase to_lse_base(nanobind::handle value);
// None, (theta, scale, interleaved).
std::optional<Rope> to_rope(nanobind::handle value);
// None, a number or an array.
Scale to_scale(Arrays& arrays, nanobind::handle value, const char* name);
// Gives uint8 caches the type that kv_dtype names: None, a name, or a pair (K, V) of them.
void name_cache_types(nanobind::handle kv_dtype, Tensor* k_cache, Tensor* v_cache);

}  // namespace pagedecode::bindings
