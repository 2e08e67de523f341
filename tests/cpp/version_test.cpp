// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "pagedecode/version.h"

namespace {

// PAGEDECODE_TEST_VERSION is what CMake made of the header.
TEST(Version, CMakeReadsTheHeader) {
  const std::string header = std::to_string(PAGEDECODE_VERSION_MAJOR) + "." +
                             std::to_string(PAGEDECODE_VERSION_MINOR) + "." +
                             std::to_string(PAGEDECODE_VERSION_PATCH);
  EXPECT_EQ(header, PAGEDECODE_TEST_VERSION);
}

}  // namespace
