# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#
# The CPU kernel is compiled once for each instruction level; the best one that the machine has is
# chosen at run time. Only x86-64 has levels besides the baseline.
#
# NOTE: a source compiled for a level may define nothing with external or weak linkage outside its
# level's own namespace: the linker keeps any one copy of an inline function, and the copy with
# AVX-512 in it would run on a machine without. tests/cpp checks the objects.
include(CheckCXXCompilerFlag)

set(PAGEDECODE_ISA_FLAGS_baseline)
set(PAGEDECODE_ISA_FLAGS_avx2 -mavx2 -mfma -mf16c)
set(PAGEDECODE_ISA_FLAGS_avx512 ${PAGEDECODE_ISA_FLAGS_avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq)
set(PAGEDECODE_ISA_FLAGS_avx512bf16 ${PAGEDECODE_ISA_FLAGS_avx512} -mavx512bf16)
set(PAGEDECODE_ISA_FLAGS_amx ${PAGEDECODE_ISA_FLAGS_avx512bf16} -mamx-tile -mamx-bf16)

# NOTE: GCC's own AVX-512 intrinsics start from `__m512 __Y = __Y`, and GCC 12 warns of it in code
# that uses them when sanitizers are on (its bug 105593, mended in 13).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  foreach(_level avx512 avx512bf16 amx)
    list(APPEND PAGEDECODE_ISA_FLAGS_${_level} -Wno-uninitialized -Wno-maybe-uninitialized)
  endforeach()
endif()

# The levels that this architecture has and this compiler knows (GCC 10 does not know AMX).
set(PAGEDECODE_ISA_LEVELS baseline)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$" AND NOT MSVC)
  foreach(_level avx2 avx512 avx512bf16 amx)
    list(JOIN PAGEDECODE_ISA_FLAGS_${_level} " " _flags)
    check_cxx_compiler_flag("${_flags}" PAGEDECODE_COMPILES_${_level})
    if(PAGEDECODE_COMPILES_${_level})
      list(APPEND PAGEDECODE_ISA_LEVELS ${_level})
    endif()
  endforeach()
endif()

# Adds <stem>_<level>.cpp of every level of this architecture to a target, each with its level's
# flags, and PAGEDECODE_ISA_<LEVEL>=1 to the whole target, for the code that dispatches.
function(pagedecode_add_isa_sources target stem)
  foreach(level IN LISTS PAGEDECODE_ISA_LEVELS)
    target_sources(${target} PRIVATE ${stem}_${level}.cpp)
    set_source_files_properties(${stem}_${level}.cpp TARGET_DIRECTORY ${target}
      PROPERTIES COMPILE_OPTIONS "${PAGEDECODE_ISA_FLAGS_${level}}")
    string(TOUPPER ${level} upper)
    target_compile_definitions(${target} PRIVATE PAGEDECODE_ISA_${upper}=1)
  endforeach()
endfunction()
