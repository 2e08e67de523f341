# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#
# Each header compiles alone: public ones with nothing but the public include folder and C++17, so
# that neither CUDA nor Python can slip in; internal ones with cpp/src. These are searched for, not
# listed: a header that somebody forgot to list would go untested.
set(PAGEDECODE_HEADERS_ALONE)
function(pagedecode_headers_alone name base)
  set(sources)
  foreach(header IN LISTS ARGN)
    string(MAKE_C_IDENTIFIER "${header}" stem)
    set(source "${CMAKE_CURRENT_BINARY_DIR}/headers/${name}/${stem}.cpp")
    file(CONFIGURE OUTPUT "${source}" CONTENT "#include \"${header}\"\n#include \"${header}\"\n" @ONLY)
    list(APPEND sources "${source}")
  endforeach()
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${sources})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/cpp/include" ${base})
  target_compile_features(${name} PRIVATE cxx_std_17)
  pagedecode_own_code(${name})
  add_test(NAME ${name}
    COMMAND "${CMAKE_COMMAND}" --build "${PROJECT_BINARY_DIR}" --config $<CONFIG> --target ${name})
  # Two builds in one folder would be in each other's way.
  set_tests_properties(${name} PROPERTIES RESOURCE_LOCK build_folder)
endfunction()

set(_include "${PROJECT_SOURCE_DIR}/cpp/include")
set(_src "${PROJECT_SOURCE_DIR}/cpp/src")
file(GLOB_RECURSE _public CONFIGURE_DEPENDS RELATIVE "${_include}" "${_include}/*.h")
file(GLOB_RECURSE _internal CONFIGURE_DEPENDS RELATIVE "${_src}" "${_src}/*.h")
# Headers of one instruction level, and those that include the CUDA runtime, need their target's flags.
list(FILTER _internal EXCLUDE REGEX "^(cpu/isa|cuda)/")
pagedecode_headers_alone(public_headers_compile_alone "" ${_public})
pagedecode_headers_alone(internal_headers_compile_alone "${_src}" ${_internal})
