# Other people's libraries: Debian's, and LibTorch (RoseTorch.cmake). Installed with the package too, for its consumers.

# The user cache, where scripts/setup.sh puts what Debian does not have.
if(DEFINED ENV{ROSE_CACHE} AND NOT "$ENV{ROSE_CACHE}" STREQUAL "")
  set(_rose_cache "$ENV{ROSE_CACHE}")
elseif(DEFINED ENV{XDG_CACHE_HOME} AND NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
  set(_rose_cache "$ENV{XDG_CACHE_HOME}/rosellm")
else()
  set(_rose_cache "$ENV{HOME}/.cache/rosellm")
endif()
set(ROSE_CACHE_DIR "${_rose_cache}" CACHE PATH "Where scripts/setup.sh keeps LibTorch, the model and the test oracles")
set(ROSE_VENV "${ROSE_CACHE_DIR}/venv-torch-2.11.0")  # one environment for each LibTorch version; setup.sh names it likewise

# Boost 1.81 unpacked there, on a machine whose own Boost is an older one that something else needs.
if(EXISTS "${ROSE_CACHE_DIR}/boost-1.81/usr")
  list(PREPEND CMAKE_PREFIX_PATH "${ROSE_CACHE_DIR}/boost-1.81/usr")
endif()

set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)  # for a project that has RoseLLM as a subdirectory
set(_rose_missing "")
macro(_rose_need package debian)
  find_package(${package} ${ARGN} QUIET)
  if(NOT ${package}_FOUND)
    list(APPEND _rose_missing "  ${package} (Debian: ${debian})")
  endif()
endmacro()

# One library and one header, for packages without a CMake file of their own.
macro(_rose_need_library name library header debian)
  if(NOT TARGET rose::${name})
    find_library(ROSE_${name}_LIBRARY ${library})
    find_path(ROSE_${name}_INCLUDE ${header})
    mark_as_advanced(ROSE_${name}_LIBRARY ROSE_${name}_INCLUDE)
    if(ROSE_${name}_LIBRARY AND ROSE_${name}_INCLUDE)
      add_library(rose::${name} UNKNOWN IMPORTED GLOBAL)
      set_target_properties(rose::${name} PROPERTIES IMPORTED_LOCATION "${ROSE_${name}_LIBRARY}"
        INTERFACE_INCLUDE_DIRECTORIES "${ROSE_${name}_INCLUDE}")
    else()
      list(APPEND _rose_missing "  ${library} (Debian: ${debian})")
    endif()
  endif()
endmacro()

set(THREADS_PREFER_PTHREAD_FLAG ON)
_rose_need(Threads libc6-dev)
_rose_need(fmt libfmt-dev)
_rose_need(spdlog libspdlog-dev)
_rose_need(yaml-cpp libyaml-cpp-dev)
_rose_need(CLI11 libcli11-dev)
_rose_need(OpenSSL libssl-dev)
_rose_need(Boost "libboost1.81-dev libboost-json1.81-dev" 1.81 COMPONENTS json)
_rose_need_library(hwy hwy hwy/highway.h libhwy-dev)
_rose_need_library(xxhash xxhash xxhash.h libxxhash-dev)
if(ROSE_TESTS)
  _rose_need(GTest "libgtest-dev libgmock-dev")
  _rose_need(rapidcheck librapidcheck-dev)
  _rose_need(benchmark libbenchmark-dev)
endif()
if(TARGET yaml-cpp)  # Debian's yaml-cpp names its include directory only by a variable
  target_include_directories(yaml-cpp SYSTEM INTERFACE ${YAML_CPP_INCLUDE_DIR})
endif()

if(_rose_missing)
  list(JOIN _rose_missing "\n" _rose_missing)
  message(FATAL_ERROR "These libraries were not found:\n${_rose_missing}\n"
    "On Debian 12, scripts/setup.sh installs them; the README says what other systems need.")
endif()

include("${CMAKE_CURRENT_LIST_DIR}/RoseCuda.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/RoseTorch.cmake")
