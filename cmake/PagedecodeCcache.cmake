# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#
# ccache where it is found, for C++ and CUDA: a CUDA build takes minutes, a cached one seconds.
find_program(CCACHE_PROGRAM ccache)
mark_as_advanced(CCACHE_PROGRAM)
if(CCACHE_PROGRAM)
  foreach(_language CXX CUDA)
    if(NOT DEFINED CMAKE_${_language}_COMPILER_LAUNCHER)
      set(CMAKE_${_language}_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
    endif()
  endforeach()
endif()
