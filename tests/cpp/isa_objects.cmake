# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#
# cmake -D NM=... -D OBJECTS=a.o;b.o -P isa_objects.cmake
#
# Fails if an object compiled for an instruction level defines a weak symbol that other objects may
# define too: the linker keeps one copy of an inline function, and the one with AVX-512 in it would
# then run on machines without. Symbols whose name holds the level's own namespace are fine.
foreach(object IN LISTS OBJECTS)
  if(NOT object MATCHES "_(avx[0-9a-z]+|amx)\\.cpp")
    continue()
  endif()
  set(level "${CMAKE_MATCH_1}")
  execute_process(COMMAND "${NM}" -C --defined-only "${object}"
    OUTPUT_VARIABLE text RESULT_VARIABLE rc)
  if(NOT rc EQUAL 0)
    message(FATAL_ERROR "${NM} cannot read ${object}")
  endif()
  string(REGEX MATCHALL "[^\n]+" lines "${text}")
  foreach(line IN LISTS lines)
    if(line MATCHES "^[0-9a-f]+ [WVu] " AND NOT line MATCHES "pagedecode::cpu::${level}::")
      message(SEND_ERROR "${object}\n  shares ${line}")
    endif()
  endforeach()
endforeach()
