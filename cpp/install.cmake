# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#
# The C++ package, for find_package(pagedecode). Component "cpp" keeps it out of the wheel.
include(CMakePackageConfigHelpers)
set(_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/pagedecode")

install(TARGETS pagedecode EXPORT pagedecode-targets
  ARCHIVE COMPONENT cpp LIBRARY COMPONENT cpp RUNTIME COMPONENT cpp
  FILE_SET HEADERS COMPONENT cpp)
install(EXPORT pagedecode-targets NAMESPACE pagedecode:: DESTINATION "${_package_dir}" COMPONENT cpp)

# A static archive leaves the CUDA runtime to the consumer's link; a shared one carries it.
if(PAGEDECODE_WITH_CUDA AND NOT BUILD_SHARED_LIBS)
  set(PAGEDECODE_NEEDS_CUDART ON)
else()
  set(PAGEDECODE_NEEDS_CUDART OFF)
endif()
configure_package_config_file(pagedecodeConfig.cmake.in
  "${CMAKE_CURRENT_BINARY_DIR}/pagedecodeConfig.cmake" INSTALL_DESTINATION "${_package_dir}")
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/pagedecodeConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${CMAKE_CURRENT_BINARY_DIR}/pagedecodeConfig.cmake"
  "${CMAKE_CURRENT_BINARY_DIR}/pagedecodeConfigVersion.cmake"
  DESTINATION "${_package_dir}" COMPONENT cpp)
