# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#
# pagedecode_find_in_wheel(<variable> <module> <header> <folder>...): the first of the folders,
# inside the installed Python package, that holds the header; empty if none does. The package is
# located, never imported: importing would load its libraries and what it depends on.
function(pagedecode_find_in_wheel variable module header)
  set(${variable} "" PARENT_SCOPE)
  find_package(Python 3.10 QUIET COMPONENTS Interpreter)
  if(NOT Python_FOUND)
    return()
  endif()
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -c "import importlib.util as u; print(u.find_spec('${module}').submodule_search_locations[0])"
    OUTPUT_VARIABLE root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE rc)
  if(NOT rc EQUAL 0)
    return()
  endif()
  foreach(folder IN LISTS ARGN)
    if(EXISTS "${root}/${folder}/${header}")
      set(${variable} "${root}/${folder}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()
