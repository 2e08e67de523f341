# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#
# CUTLASS headers (BSD-3-Clause): CUTLASS_INCLUDE_DIR, else the nvidia-cutlass wheel of the active
# Python, else fetched. Used to compile the CUDA backend only; nothing of it is installed.
set(PAGEDECODE_CUTLASS_VERSION 4.2.0)
set(CUTLASS_INCLUDE_DIR "" CACHE PATH "Folder of the CUTLASS headers, cutlass/ and cute/")

set(_cutlass "${CUTLASS_INCLUDE_DIR}")
if(_cutlass)
  if(NOT EXISTS "${_cutlass}/cute/tensor.hpp")
    message(FATAL_ERROR "CUTLASS_INCLUDE_DIR=${_cutlass} has no cute/tensor.hpp")
  endif()
else()
  pagedecode_find_in_wheel(_cutlass cutlass_library cute/tensor.hpp source/include)
endif()
if(NOT _cutlass)
  message(STATUS "pagedecode: fetching CUTLASS ${PAGEDECODE_CUTLASS_VERSION}"
    " (or: pip install --no-deps nvidia-cutlass==${PAGEDECODE_CUTLASS_VERSION}.0,"
    " or -DPAGEDECODE_CUDA=OFF)")
  FetchContent_Declare(cutlass
    GIT_REPOSITORY https://github.com/NVIDIA/cutlass.git
    GIT_TAG v${PAGEDECODE_CUTLASS_VERSION}
    GIT_SHALLOW ON
    SOURCE_SUBDIR include) # headers only: there is no CMakeLists.txt to run in that folder
  FetchContent_MakeAvailable(cutlass)
  set(_cutlass "${cutlass_SOURCE_DIR}/include")
endif()
message(STATUS "pagedecode: CUTLASS headers: ${_cutlass}")

add_library(pagedecode_cutlass INTERFACE)
target_include_directories(pagedecode_cutlass SYSTEM INTERFACE "${_cutlass}")
