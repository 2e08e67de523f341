// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "pagedecode/types.h"

namespace pagedecode {
namespace {

struct DTypeRow {
  const char* name;
  int size;
};

// In the order of DType.
constexpr DTypeRow kDTypes[] = {
    {"float32", 4},   {"float16", 2},     {"bfloat16", 2}, {"float8_e4m3fn", 1}, {"float8_e5m2", 1},
    {"int8", 1},      {"uint8", 1},       {"bool", 1},     {"int32", 4},         {"int64", 8},
    {"uint32", 4},    {"float64", 8},     {"int16", 2},    {"uint16", 2},        {"uint64", 8},
    {"complex64", 8}, {"complex128", 16},
};
static_assert(sizeof(kDTypes) / sizeof(kDTypes[0]) == static_cast<int>(DType::kComplex128) + 1,
              "one row for each DType");

constexpr DTypeRow kNoDType = {"unknown", 0};

const DTypeRow& row_of(DType dtype) {
  return dtype <= DType::kComplex128 ? kDTypes[static_cast<int>(dtype)] : kNoDType;
}

}  // namespace

int size_of(DType dtype) { return row_of(dtype).size; }

const char* name_of(DType dtype) { return row_of(dtype).name; }

}  // namespace pagedecode
