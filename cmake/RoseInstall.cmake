# `cmake --install`: headers, libraries, programs, and a CMake package: find_package(rose) then rose::core, rose::model, …
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
get_property(_libraries GLOBAL PROPERTY ROSE_LIBRARIES)
get_property(_programs GLOBAL PROPERTY ROSE_PROGRAMS)
set(_package "${CMAKE_INSTALL_LIBDIR}/cmake/rose")

install(TARGETS ${_libraries} EXPORT rose)
install(EXPORT rose NAMESPACE rose:: DESTINATION "${_package}" FILE rose-targets.cmake)
if(_programs)
  install(TARGETS ${_programs})
endif()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/generated/rose" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING PATTERN "*.h" PATTERN "*.cuh" PATTERN "*.inl")
set(ROSE_WITH_TORCH OFF)
if(TARGET rose::torch)
  set(ROSE_WITH_TORCH ON)
endif()
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/rose-config.cmake.in" "${PROJECT_BINARY_DIR}/rose-config.cmake"
  INSTALL_DESTINATION "${_package}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/rose-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/rose-config.cmake" "${PROJECT_BINARY_DIR}/rose-config-version.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/RoseDependencies.cmake" "${PROJECT_SOURCE_DIR}/cmake/RoseCuda.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/RoseTorch.cmake"
  DESTINATION "${_package}")
