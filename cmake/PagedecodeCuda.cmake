# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#
# Turns PAGEDECODE_CUDA=AUTO|ON|OFF into PAGEDECODE_WITH_CUDA, and enables the CUDA language if so.

# wgmma and TMA through CUTLASS 4.2 need this nvcc; older toolkits (Debian 12's own is 11.8) do not.
set(PAGEDECODE_MIN_NVCC 12.5)

# Path and version of the nvcc that CMake would take; both empty where there is none.
function(pagedecode_find_nvcc path_var version_var)
  set(path "$ENV{CUDACXX}")
  if(CMAKE_CUDA_COMPILER)
    set(path "${CMAKE_CUDA_COMPILER}")
  endif()
  if(NOT path)
    find_program(_nvcc nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATH_SUFFIXES bin
      PATHS /usr/local/cuda NO_CACHE)
    if(_nvcc)
      set(path "${_nvcc}")
    endif()
  endif()
  set(version "")
  if(path)
    execute_process(COMMAND "${path}" --version OUTPUT_VARIABLE text ERROR_QUIET RESULT_VARIABLE rc)
    if(rc EQUAL 0 AND text MATCHES "release ([0-9]+\\.[0-9]+)")
      set(version "${CMAKE_MATCH_1}")
    else()
      set(path "")
    endif()
  endif()
  set(${path_var} "${path}" PARENT_SCOPE)
  set(${version_var} "${version}" PARENT_SCOPE)
endfunction()

set(PAGEDECODE_WITH_CUDA OFF)
if(PAGEDECODE_CUDA STREQUAL "AUTO" OR PAGEDECODE_CUDA)
  pagedecode_find_nvcc(_nvcc_path _nvcc_version)
  if(NOT _nvcc_path)
    set(_problem "no nvcc was found")
  elseif(_nvcc_version VERSION_LESS PAGEDECODE_MIN_NVCC)
    set(_problem "${_nvcc_path} is ${_nvcc_version}, older than ${PAGEDECODE_MIN_NVCC}")
  else()
    set(_problem "")
  endif()
  if(NOT _problem)
    set(PAGEDECODE_WITH_CUDA ON)
  elseif(PAGEDECODE_CUDA STREQUAL "AUTO")
    message(STATUS "pagedecode: CUDA backend off: ${_problem}")
  else()
    message(FATAL_ERROR "PAGEDECODE_CUDA=${PAGEDECODE_CUDA}, but ${_problem}")
  endif()
endif()

if(PAGEDECODE_WITH_CUDA)
  # Each CUDA target names its own architectures (cpp/CMakeLists.txt); this default only keeps
  # CMake's compiler check from choosing one that the toolkit deprecates.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90a-real)
  endif()
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    set(CMAKE_CUDA_COMPILER "${_nvcc_path}")
  endif()
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static) # the wheel imports where there is no driver
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  message(STATUS "pagedecode: CUDA backend on: nvcc ${CMAKE_CUDA_COMPILER_VERSION}")
endif()
