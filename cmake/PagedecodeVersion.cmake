# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#
# PAGEDECODE_VERSION from the one place where the version stands.
set(_header "${CMAKE_CURRENT_LIST_DIR}/../cpp/include/pagedecode/version.h")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${_header}")
file(READ "${_header}" _text)
set(_parts)
foreach(_part MAJOR MINOR PATCH)
  if(NOT _text MATCHES "#define PAGEDECODE_VERSION_${_part} ([0-9]+)")
    message(FATAL_ERROR "pagedecode/version.h: no PAGEDECODE_VERSION_${_part}")
  endif()
  list(APPEND _parts "${CMAKE_MATCH_1}")
endforeach()
list(JOIN _parts "." PAGEDECODE_VERSION)
