# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#
# GoogleTest (BSD-3-Clause): the system's (Debian and Ubuntu: libgtest-dev), else fetched.
set(INSTALL_GTEST OFF)
set(BUILD_GMOCK OFF)
FetchContent_Declare(googletest
  URL https://github.com/google/googletest/archive/refs/tags/v1.15.2.tar.gz
  URL_HASH SHA256=7b42b4d6ed48810c5362c265a17faebe90dc2373c885e5216439d37927f02926
  FIND_PACKAGE_ARGS GLOBAL NAMES GTest) # GLOBAL: the targets are used in tests/cpp
FetchContent_MakeAvailable(googletest)
