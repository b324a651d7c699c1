# How everything of ours is compiled.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Debug, RelWithDebInfo, Release" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)  # an installed rose-engine finds the LibTorch that it was linked with
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
endif()

# -g1: enough for backtraces with file and line, a fraction of the size. Debug builds keep everything.
string(REPLACE "-g " "-g1 " CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO} ")

# rose_compile_options: for our own code only. -ffp-contract=off is part of the numerical contract: a multiply and an add
# are two roundings everywhere, so that the same sum has the same bits in every function it is inlined into.
add_library(rose_compile_options INTERFACE)
target_compile_options(rose_compile_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wconversion -Werror -ffp-contract=off>
  $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false -lineinfo -Xcompiler=-Wall,-Wextra,-ffp-contract=off>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 warns of overlapping copies inside std::string's operator+ where there are none (GCC bug 105651).
  target_compile_options(rose_compile_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
if(ROSE_SANITIZE)
  target_compile_options(rose_compile_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${ROSE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer>)
  target_link_options(rose_compile_options INTERFACE -fsanitize=${ROSE_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ 12 reports these inside the standard library once sanitizers change what is inlined.
    target_compile_options(rose_compile_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-error=maybe-uninitialized
      -Wno-error=stringop-overflow -Wno-error=array-bounds -Wno-error=restrict -Wno-error=tsan>)
  endif()
endif()
if(ROSE_COVERAGE)
  target_compile_options(rose_compile_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:--coverage -fprofile-abs-path>)
  target_link_options(rose_compile_options INTERFACE --coverage)
endif()

if(PROJECT_IS_TOP_LEVEL)
  find_program(ROSE_MOLD mold)
  mark_as_advanced(ROSE_MOLD)
  if(ROSE_MOLD)
    add_link_options(-fuse-ld=mold)
  endif()
endif()

# Through ccache, with paths made relative to the checkout, so that two clones share one cache, and with what a
# precompiled header needs. Set the launcher yourself to override.
if(ROSE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(ROSE_CCACHE_PROGRAM ccache)
  mark_as_advanced(ROSE_CCACHE_PROGRAM)
  if(ROSE_CCACHE_PROGRAM)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env
      "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      "${ROSE_CCACHE_PROGRAM}")
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
    else()
      add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>")
    endif()
  endif()
endif()

# CUDA where there is a compiler for it. Nothing else depends on a toolkit.
set(ROSE_HAVE_CUDA OFF)
if(NOT ROSE_CUDA STREQUAL "OFF")
  find_program(ROSE_NVCC nvcc HINTS ENV CUDACXX PATHS /usr/local/cuda/bin)
  mark_as_advanced(ROSE_NVCC)
  if(ROSE_NVCC)
    set(CMAKE_CUDA_COMPILER "${ROSE_NVCC}")
    set(CMAKE_CUDA_ARCHITECTURES ${ROSE_CUDA_ARCH})  # "90a", or a list: "80;90a"
    list(TRANSFORM CMAKE_CUDA_ARCHITECTURES APPEND "-real" REGEX "^[0-9]+[a-z]?$")
    set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # the one that LibTorch loads, too
    set(CMAKE_CUDA_STANDARD 20)
    set(ROSE_HAVE_CUDA ON)
  elseif(ROSE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "ROSE_CUDA=ON, but there is no nvcc on PATH or in /usr/local/cuda/bin.\n"
      "Install the CUDA Toolkit 13, or configure with -DROSE_CUDA=AUTO to build without CUDA kernels.")
  endif()
endif()
