# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#
# The installed C++ package, as another project uses it: tests/consumer finds it, links, runs.
set(_prefix "${CMAKE_CURRENT_BINARY_DIR}/consumer/prefix")
add_test(NAME package_installs
  COMMAND "${CMAKE_COMMAND}" --install "${PROJECT_BINARY_DIR}" --config $<CONFIG>
          --component cpp --prefix "${_prefix}")
add_test(NAME package_is_found_and_links
  COMMAND "${CMAKE_CTEST_COMMAND}"
    --build-and-test "${PROJECT_SOURCE_DIR}/tests/consumer" "${CMAKE_CURRENT_BINARY_DIR}/consumer/build"
    --build-generator "${CMAKE_GENERATOR}"
    --build-options "-DCMAKE_PREFIX_PATH=${_prefix}" "-DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}"
    --test-command consumer)
set_tests_properties(package_installs PROPERTIES FIXTURES_SETUP package)
set_tests_properties(package_is_found_and_links PROPERTIES FIXTURES_REQUIRED package
  ENVIRONMENT "CUDACXX=nvcc-is-not-needed")
