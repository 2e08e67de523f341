# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#
# pagedecode_own_code(<target>): the flags of everything that we wrote: warnings, sanitizers,
# and floating point whose bits do not depend on how an expression happens to be written.
function(pagedecode_own_code target)
  set_target_properties(${target} PROPERTIES
    CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  if(MSVC)
    return()
  endif()
  set(warnings -Wall -Wextra)
  if(PAGEDECODE_WERROR)
    list(APPEND warnings -Werror)
  endif()
  list(JOIN warnings "," cuda_warnings)
  target_compile_options(${target} PRIVATE
    # A contracted multiply-add rounds once where two instructions round twice: the compiler must
    # not choose, or a row's bits would depend on its neighbours. Kernels write std::fma where they want it.
    "$<$<COMPILE_LANGUAGE:CXX>:${warnings};-ffp-contract=off>"
    "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Xcompiler=${cuda_warnings}>"
    "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Xptxas --warn-on-spills>"
    "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>")
  if(PAGEDECODE_SANITIZE)
    target_compile_options(${target} PRIVATE
      "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${PAGEDECODE_SANITIZE};-fno-sanitize-recover=all;-fno-omit-frame-pointer>")
    target_link_options(${target} PUBLIC -fsanitize=${PAGEDECODE_SANITIZE})
  endif()
endfunction()
