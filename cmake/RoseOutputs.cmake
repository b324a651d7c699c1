# What the book tangles into: ROSE_OUTPUTS, ROSE_CHAPTER_TESTS, ROSE_EXAMPLES, ROSE_FAILS, ROSE_EXERCISES, ROSE_BENCHES and
# ROSE_LINKS_*, from the list that `tangle emit` keeps. CMake runs again when that list changes, and only then.
set(ROSE_GENERATED "${PROJECT_SOURCE_DIR}/generated")

if(EXISTS "${ROSE_GENERATED}/outputs.cmake")
  include("${ROSE_GENERATED}/outputs.cmake")
else()  # before the tangler writes it: look
  file(GLOB_RECURSE ROSE_OUTPUTS CONFIGURE_DEPENDS RELATIVE "${ROSE_GENERATED}"
    "${ROSE_GENERATED}/rose/*" "${ROSE_GENERATED}/labs/*")
  file(GLOB_RECURSE ROSE_CHAPTER_TESTS CONFIGURE_DEPENDS RELATIVE "${ROSE_GENERATED}/tests" "${ROSE_GENERATED}/tests/*_test.cpp")
  list(TRANSFORM ROSE_CHAPTER_TESTS REPLACE "_test\\.cpp$" "")
  foreach(_chapter IN LISTS ROSE_CHAPTER_TESTS)
    set(_links "")
    if(EXISTS "${PROJECT_SOURCE_DIR}/book/${_chapter}.md")
      file(STRINGS "${PROJECT_SOURCE_DIR}/book/${_chapter}.md" _links LIMIT_COUNT 1 REGEX "^links:.*torch")
    endif()
    if(_links)
      set(ROSE_LINKS_${_chapter} torch)
    endif()
  endforeach()
  foreach(_kind IN ITEMS EXAMPLES:examples BENCHES:bench)
    string(REGEX MATCH "^([A-Z]+):(.*)$" _ "${_kind}")
    set(_name ROSE_${CMAKE_MATCH_1})
    file(GLOB ${_name} CONFIGURE_DEPENDS RELATIVE "${ROSE_GENERATED}/${CMAKE_MATCH_2}" "${ROSE_GENERATED}/${CMAKE_MATCH_2}/*.cpp")
    list(TRANSFORM ${_name} REPLACE "\\.cpp$" "")
  endforeach()
endif()

# -DROSE_LINES=book: build a copy whose #line directives name the chapters, so that the debugger, the profiler and the
# coverage report open the book.
if(ROSE_LINES STREQUAL "book")
  set(_tangle "${PROJECT_SOURCE_DIR}/build/bin/tangle")
  if(NOT EXISTS "${_tangle}")
    message(FATAL_ERROR "ROSE_LINES=book needs ${_tangle}: run `make tangle` first.")
  endif()
  set(ROSE_GENERATED "${PROJECT_BINARY_DIR}/generated")
  set(_command "${_tangle}" emit --lines=book --out "${ROSE_GENERATED}")
  execute_process(COMMAND ${_command} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}" COMMAND_ERROR_IS_FATAL ANY)
  set(_byproducts ${ROSE_OUTPUTS} ${ROSE_CHAPTER_TESTS})
  list(TRANSFORM _byproducts PREPEND "${ROSE_GENERATED}/" )
  list(FILTER _byproducts INCLUDE REGEX "/rose/")
  foreach(_chapter IN LISTS ROSE_CHAPTER_TESTS)
    list(APPEND _byproducts "${ROSE_GENERATED}/tests/${_chapter}_test.cpp")
  endforeach()
  add_custom_target(rose_lines ALL COMMAND ${_command} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    BYPRODUCTS ${_byproducts} COMMENT "Tangling with #line" VERBATIM)
endif()

# The CUDA language, when something is written in it and there is a compiler for it.
set(_cuda_files ${ROSE_OUTPUTS} ${ROSE_FILES})
list(FILTER _cuda_files INCLUDE REGEX "\\.cu$")
if(ROSE_HAVE_CUDA AND _cuda_files)
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc 12 and later compile C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
endif()
