# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#
# The CUDA backend's sources, one a line, in three groups. sm_90a SASS runs on compute capability
# 9.0 only and has no PTX fallback; sm_80 SASS runs on 8.x; its PTX serves what is newer.

# Host code: checks, policy, dispatch, workspace, streams. Sees the CUDA runtime and CUTLASS.
target_sources(pagedecode PRIVATE
  src/cuda/check/check_contents.cpp
  src/cuda/decode/launch.cpp
  src/cuda/dispatch.cpp
  src/cuda/runtime/device_query.cpp
  src/cuda/runtime/error.cpp
  src/cuda/runtime/status.cpp
  src/cuda/runtime/workspace.cpp
)

# Runs on any GPU from sm_80 on: SASS for 80 and 90a, PTX for 80.
set(PAGEDECODE_CUDA_ARCHITECTURES "80;90a-real" CACHE STRING
  "Architectures of these sources; one alone halves a developer's build")
mark_as_advanced(PAGEDECODE_CUDA_ARCHITECTURES)
set(PAGEDECODE_CUDA_GENERIC_SOURCES
  src/cuda/append/append.cu
  src/cuda/check/gather_indices.cu
  src/cuda/decode/instances/any_bf16_d256.cu
  src/cuda/decode/instances/any_fp16_d256.cu
  src/cuda/decode/instances/bf16_d128.cu
  src/cuda/decode/instances/bf16_d128_options.cu
  src/cuda/decode/instances/bf16_d128_rows.cu
  src/cuda/decode/instances/bf16_d256.cu
  src/cuda/decode/instances/bf16_d256_options.cu
  src/cuda/decode/instances/bf16_d64.cu
  src/cuda/decode/instances/bytes_d128.cu
  src/cuda/decode/instances/bytes_d128_options.cu
  src/cuda/decode/instances/bytes_d256.cu
  src/cuda/decode/instances/bytes_d256_options.cu
  src/cuda/decode/instances/bytes_d64.cu
  src/cuda/decode/instances/e4m3_d128.cu
  src/cuda/decode/instances/fp16_d128.cu
  src/cuda/decode/instances/fp16_d128_options.cu
  src/cuda/decode/instances/fp16_d128_rows.cu
  src/cuda/decode/instances/fp16_d256.cu
  src/cuda/decode/instances/fp16_d256_options.cu
  src/cuda/decode/instances/fp16_d64.cu
  src/cuda/merge_states/merge_states.cu
  src/cuda/move/move.cu
  src/cuda/slots/slots.cu
)

# Hopper only: wgmma and TMA.
if(PAGEDECODE_HOPPER)
  target_sources(pagedecode PRIVATE
    src/cuda/decode_wgmma/launch.cpp
    src/cuda/decode_wgmma/tensor_map.cpp
  )
  set(PAGEDECODE_CUDA_HOPPER_SOURCES
    src/cuda/decode_wgmma/instances/bf16_d128_r128.cu
    src/cuda/decode_wgmma/instances/bf16_d128_r128_few.cu
    src/cuda/decode_wgmma/instances/bf16_d128_r16.cu
    src/cuda/decode_wgmma/instances/bf16_d128_r16_copies.cu
    src/cuda/decode_wgmma/instances/bf16_d128_r16_few.cu
    src/cuda/decode_wgmma/instances/bf16_d128_r32.cu
    src/cuda/decode_wgmma/instances/bf16_d128_r32_copies.cu
    src/cuda/decode_wgmma/instances/bf16_d128_r32_few.cu
    src/cuda/decode_wgmma/instances/bf16_d128_r64.cu
    src/cuda/decode_wgmma/instances/bf16_d128_r64_copies.cu
    src/cuda/decode_wgmma/instances/bf16_d128_r8.cu
    src/cuda/decode_wgmma/instances/bf16_d128_r8_few.cu
    src/cuda/decode_wgmma/instances/bf16_d256_r128.cu
    src/cuda/decode_wgmma/instances/bf16_d256_r16.cu
    src/cuda/decode_wgmma/instances/bf16_d256_r32.cu
    src/cuda/decode_wgmma/instances/bf16_d256_r32_copies.cu
    src/cuda/decode_wgmma/instances/bf16_d256_r64.cu
    src/cuda/decode_wgmma/instances/bf16_d256_r64_copies.cu
    src/cuda/decode_wgmma/instances/bf16_d64_r16.cu
    src/cuda/decode_wgmma/instances/bf16_d64_r16_few.cu
    src/cuda/decode_wgmma/instances/bf16_d64_r32.cu
    src/cuda/decode_wgmma/instances/bf16_d64_r32_copies.cu
    src/cuda/decode_wgmma/instances/bf16_d64_r32_few.cu
    src/cuda/decode_wgmma/instances/bf16_d64_r64.cu
    src/cuda/decode_wgmma/instances/bf16_d64_r64_copies.cu
    src/cuda/decode_wgmma/instances/bytes_d128_r128.cu
    src/cuda/decode_wgmma/instances/bytes_d128_r16_copies.cu
    src/cuda/decode_wgmma/instances/bytes_d128_r32.cu
    src/cuda/decode_wgmma/instances/bytes_d128_r32_copies.cu
    src/cuda/decode_wgmma/instances/bytes_d128_r64.cu
    src/cuda/decode_wgmma/instances/bytes_d128_r64_copies.cu
    src/cuda/decode_wgmma/instances/bytes_d128_r64_few.cu
    src/cuda/decode_wgmma/instances/bytes_d256_r16.cu
    src/cuda/decode_wgmma/instances/bytes_d256_r16_copies.cu
    src/cuda/decode_wgmma/instances/bytes_d256_r16_few.cu
    src/cuda/decode_wgmma/instances/bytes_d256_r32.cu
    src/cuda/decode_wgmma/instances/bytes_d256_r32_few.cu
    src/cuda/decode_wgmma/instances/bytes_d256_r64.cu
    src/cuda/decode_wgmma/instances/bytes_d256_r64_copies.cu
    src/cuda/decode_wgmma/instances/bytes_d64_r128.cu
    src/cuda/decode_wgmma/instances/bytes_d64_r16.cu
    src/cuda/decode_wgmma/instances/bytes_d64_r16_few.cu
    src/cuda/decode_wgmma/instances/bytes_d64_r32.cu
    src/cuda/decode_wgmma/instances/bytes_d64_r32_copies.cu
    src/cuda/decode_wgmma/instances/bytes_d64_r32_few.cu
    src/cuda/decode_wgmma/instances/bytes_d64_r64.cu
    src/cuda/decode_wgmma/instances/bytes_d64_r64_copies.cu
    src/cuda/decode_wgmma/instances/e4m3_d128_r128.cu
    src/cuda/decode_wgmma/instances/e4m3_d128_r16.cu
    src/cuda/decode_wgmma/instances/e4m3_d128_r16_few.cu
    src/cuda/decode_wgmma/instances/e4m3_d128_r32.cu
    src/cuda/decode_wgmma/instances/e4m3_d128_r32_few.cu
    src/cuda/decode_wgmma/instances/e4m3_d128_r64.cu
    src/cuda/decode_wgmma/instances/e4m3_d128_r64_few.cu
    src/cuda/decode_wgmma/instances/e4m3_d128_r8.cu
    src/cuda/decode_wgmma/instances/e4m3_d128_r8_few.cu
    src/cuda/decode_wgmma/instances/fp16_d128_r128.cu
    src/cuda/decode_wgmma/instances/fp16_d128_r128_few.cu
    src/cuda/decode_wgmma/instances/fp16_d128_r16.cu
    src/cuda/decode_wgmma/instances/fp16_d128_r16_few.cu
    src/cuda/decode_wgmma/instances/fp16_d128_r64.cu
    src/cuda/decode_wgmma/instances/fp16_d128_r64_copies.cu
    src/cuda/decode_wgmma/instances/fp16_d256_r128.cu
    src/cuda/decode_wgmma/instances/fp16_d256_r16.cu
    src/cuda/decode_wgmma/instances/fp16_d256_r64.cu
    src/cuda/decode_wgmma/instances/fp16_d64_r16.cu
    src/cuda/decode_wgmma/instances/fp16_d64_r64.cu
  )
else()
  target_sources(pagedecode PRIVATE src/cuda/decode_wgmma/no_wgmma.cpp)
endif()

# Object libraries, since architectures belong to a target; their objects go into pagedecode.
function(pagedecode_cuda_objects name architectures)
  if(NOT ARGN)
    return()
  endif()
  add_library(${name} OBJECT ${ARGN})
  set_target_properties(${name} PROPERTIES CUDA_ARCHITECTURES "${architectures}")
  target_compile_features(${name} PRIVATE cxx_std_17 cuda_std_17)
  target_include_directories(${name} PRIVATE include src)
  target_link_libraries(${name} PRIVATE pagedecode_cutlass CUDA::cudart_static)
  target_compile_definitions(${name} PRIVATE
    PAGEDECODE_RACECHECK=$<BOOL:${PAGEDECODE_RACECHECK}>
    PAGEDECODE_TEST_DELAYS=$<BOOL:${PAGEDECODE_TEST_DELAYS}>)
  pagedecode_own_code(${name})
  target_sources(pagedecode PRIVATE $<TARGET_OBJECTS:${name}>)
endfunction()

pagedecode_cuda_objects(pagedecode_cuda_generic "${PAGEDECODE_CUDA_ARCHITECTURES}" ${PAGEDECODE_CUDA_GENERIC_SOURCES})
pagedecode_cuda_objects(pagedecode_cuda_hopper "90a-real" ${PAGEDECODE_CUDA_HOPPER_SOURCES})

target_link_libraries(pagedecode PRIVATE $<BUILD_INTERFACE:pagedecode_cutlass> CUDA::cudart_static)
