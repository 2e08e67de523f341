# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#
# dlpack/dlpack.h (Apache-2.0) with the C exchange API, which came with DLPack 1.2:
# DLPACK_INCLUDE_DIR, else the apache-tvm-ffi wheel of the active Python, which carries the header,
# else fetched.
set(DLPACK_INCLUDE_DIR "" CACHE PATH "Folder that holds dlpack/dlpack.h, version 1.2 or newer")

set(_dlpack "${DLPACK_INCLUDE_DIR}")
if(_dlpack)
  if(NOT EXISTS "${_dlpack}/dlpack/dlpack.h")
    message(FATAL_ERROR "DLPACK_INCLUDE_DIR=${_dlpack} has no dlpack/dlpack.h")
  endif()
else()
  pagedecode_find_in_wheel(_dlpack tvm_ffi dlpack/dlpack.h include 3rdparty/dlpack/include)
endif()
if(NOT _dlpack)
  message(STATUS "pagedecode: fetching the DLPack header (or: pip install --no-deps apache-tvm-ffi)")
  FetchContent_Declare(dlpack
    GIT_REPOSITORY https://github.com/dmlc/dlpack.git
    GIT_TAG v1.2
    GIT_SHALLOW ON
    SOURCE_SUBDIR include) # the header only: there is no CMakeLists.txt to run in that folder
  FetchContent_MakeAvailable(dlpack)
  set(_dlpack "${dlpack_SOURCE_DIR}/include")
endif()
message(STATUS "pagedecode: DLPack header: ${_dlpack}")

add_library(pagedecode_dlpack INTERFACE)
target_include_directories(pagedecode_dlpack SYSTEM INTERFACE "${_dlpack}")
