# Tests: one CTest test per program, so that nothing is started to be asked for its cases. Labels: unit (a chapter's own),
# oracle (compared with other people's programs), e2e, fuzz, gpu, slow.

# One precompiled header for every GoogleTest program: GoogleTest and the prelude that chapter tests include.
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/pch/test.cpp" CONTENT "")
add_library(rose_pch_test OBJECT EXCLUDE_FROM_ALL "${PROJECT_BINARY_DIR}/pch/test.cpp")
target_link_libraries(rose_pch_test PRIVATE rose_compile_options GTest::gmock GTest::gtest)
target_precompile_headers(rose_pch_test PRIVATE <gmock/gmock.h> <gtest/gtest.h> <algorithm> <array> <filesystem>
  <fstream> <functional> <map> <memory> <optional> <random> <set> <span> <sstream> <string> <thread> <tuple> <vector>)

# The interpreter of the set-up's virtual environment; oracle tests are left out without it.
set(ROSE_PYTHON "${ROSE_VENV}/bin/python" CACHE FILEPATH "Python with the packages of the oracle tests")

# What every test is told: where things are, so that no test guesses.
set(ROSE_TEST_ENVIRONMENT
  "ROSE_SOURCE=${PROJECT_SOURCE_DIR}"
  "ROSE_BUILD=${PROJECT_BINARY_DIR}"
  "ROSE_BIN=${PROJECT_BINARY_DIR}/bin"
  "ROSE_TANGLE=${PROJECT_SOURCE_DIR}/build/bin/tangle"
  "ROSE_PYTHON=${ROSE_PYTHON}"
  "ROSE_CXX=${CMAKE_CXX_COMPILER}"
  "ASAN_OPTIONS=strict_string_checks=1:detect_stack_use_after_return=1:check_initialization_order=1"
  "UBSAN_OPTIONS=print_stacktrace=1"
  "PYTHONDONTWRITEBYTECODE=1"
  "HF_HUB_OFFLINE=1")
if(NOT DEFINED ENV{ROSE_MODEL} AND EXISTS "${ROSE_CACHE_DIR}/models/SmolLM2-135M-Instruct.Q4_1.gguf")
  list(APPEND ROSE_TEST_ENVIRONMENT "ROSE_MODEL=${ROSE_CACHE_DIR}/models/SmolLM2-135M-Instruct.Q4_1.gguf")
endif()

function(_rose_register name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "COMMAND;LABELS")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 600)
  endif()
  add_test(NAME ${name} COMMAND ${arg_COMMAND} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} SKIP_RETURN_CODE 77
    ENVIRONMENT "${ROSE_TEST_ENVIRONMENT}")
endfunction()

# What a program of the tests links: LINKS where it says so, else the book's libraries, with LibTorch's where TORCH is given.
# `result` is empty where that needs a LibTorch that is not here.
function(_rose_libraries result torch)
  if(torch AND NOT TARGET rose::torch)
    set(${result} "" PARENT_SCOPE)
  elseif(ARGN)
    set(${result} rose_compile_options ${ARGN} PARENT_SCOPE)
  elseif(torch)
    set(${result} rose_compile_options ${ROSE_ALL_LIBRARIES} PARENT_SCOPE)
  else()
    set(${result} rose_compile_options ${ROSE_PLAIN_LIBRARIES} PARENT_SCOPE)
  endif()
endfunction()

# rose_cpp_test(NAME test_x SOURCES … [LINKS …] [LABELS …] [TIMEOUT s] [TORCH]): a GoogleTest program.
function(rose_cpp_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "TORCH" "NAME;TIMEOUT" "SOURCES;LINKS;LABELS")
  _rose_libraries(libraries "${arg_TORCH}" ${arg_LINKS})
  if(NOT libraries)
    return()
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  add_executable(${arg_NAME} ${arg_SOURCES})
  target_link_libraries(${arg_NAME} PRIVATE ${libraries} GTest::gmock GTest::gtest GTest::gmock_main rapidcheck)
  target_precompile_headers(${arg_NAME} REUSE_FROM rose_pch_test)
  _rose_after_lines(${arg_NAME})
  _rose_register(${arg_NAME} COMMAND ${arg_NAME} --gtest_brief=1 LABELS ${arg_LABELS} TIMEOUT ${arg_TIMEOUT})
endfunction()

# rose_gpu_cases(test_x): registers the program's cases for a GPU (*Gpu*) once more, with label gpu; there a missing GPU fails.
function(rose_gpu_cases name)
  if(ROSE_HAVE_CUDA AND TARGET ${name})
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "")
    _rose_register(gpu_${name} COMMAND ${name} --gtest_filter=*Gpu* LABELS gpu TIMEOUT ${arg_TIMEOUT})
    set_property(TEST gpu_${name} APPEND PROPERTY ENVIRONMENT ROSE_REQUIRE_GPU=1)
    set_property(TEST gpu_${name} PROPERTY RESOURCE_LOCK gpu)
  endif()
endfunction()

# rose_tool(NAME x SOURCES … [LINKS …] [TORCH]): a program that a test calls.
function(rose_tool)
  cmake_parse_arguments(PARSE_ARGV 0 arg "TORCH" "NAME" "SOURCES;LINKS")
  _rose_libraries(libraries "${arg_TORCH}" ${arg_LINKS})
  if(NOT libraries)
    return()
  endif()
  add_executable(${arg_NAME} ${arg_SOURCES})
  target_link_libraries(${arg_NAME} PRIVATE ${libraries})
  _rose_after_lines(${arg_NAME})
endfunction()

# rose_python_test(NAME x SCRIPT x.py [ARGS …] [LABELS …] [TIMEOUT s] [DEPENDS target …]): an oracle comparison. Left out when a
# program that it DEPENDS on is not built here. Exit code 77 means skipped.
function(rose_python_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;SCRIPT;TIMEOUT" "ARGS;LABELS;DEPENDS")
  if(NOT arg_LABELS)
    set(arg_LABELS oracle)
  endif()
  if(NOT EXISTS "${ROSE_PYTHON}")
    message(STATUS "  test ${arg_NAME}: left out, there is no ${ROSE_PYTHON} (scripts/setup.sh makes it)")
    return()
  endif()
  foreach(target IN LISTS arg_DEPENDS)
    if(NOT TARGET ${target})
      message(STATUS "  test ${arg_NAME}: left out, it needs ${target}")
      return()
    endif()
  endforeach()
  _rose_register(${arg_NAME} COMMAND "${ROSE_PYTHON}" "${CMAKE_CURRENT_SOURCE_DIR}/${arg_SCRIPT}" ${arg_ARGS}
    LABELS ${arg_LABELS} TIMEOUT ${arg_TIMEOUT})
endfunction()

# rose_shell_test(NAME x SCRIPT x.sh [ARGS …] [LABELS …] [TIMEOUT s]): a script; exit code 77 means skipped.
function(rose_shell_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;SCRIPT;TIMEOUT" "ARGS;LABELS")
  if(NOT arg_LABELS)
    set(arg_LABELS e2e)
  endif()
  _rose_register(${arg_NAME} COMMAND bash "${CMAKE_CURRENT_SOURCE_DIR}/${arg_SCRIPT}" ${arg_ARGS}
    LABELS ${arg_LABELS} TIMEOUT ${arg_TIMEOUT})
endfunction()

# rose_fuzzer(NAME fuzz_x SOURCES … [LINKS …] [TORCH]): LLVMFuzzerTestOneInput. With -DROSE_FUZZ=ON (clang) a libFuzzer program; else a
# program that replays tests/fuzz/corpus/NAME, a regression test under every compiler.
function(rose_fuzzer)
  cmake_parse_arguments(PARSE_ARGV 0 arg "TORCH" "NAME" "SOURCES;LINKS")
  _rose_libraries(libraries "${arg_TORCH}" ${arg_LINKS})
  if(NOT libraries)
    return()
  endif()
  set(corpus "${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${arg_NAME}")
  if(ROSE_FUZZ)
    add_executable(${arg_NAME} ${arg_SOURCES})
    target_link_options(${arg_NAME} PRIVATE -fsanitize=fuzzer)
  else()
    add_executable(${arg_NAME} ${arg_SOURCES} "${PROJECT_SOURCE_DIR}/tests/fuzz/replay.cpp")
    if(EXISTS "${corpus}")
      _rose_register(${arg_NAME} COMMAND ${arg_NAME} "${corpus}" LABELS fuzz)
    endif()
  endif()
  target_link_libraries(${arg_NAME} PRIVATE ${libraries})
  _rose_after_lines(${arg_NAME})
endfunction()
if(ROSE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "ROSE_FUZZ=ON needs clang: configure with -DCMAKE_CXX_COMPILER=clang++-16 (preset `fuzz`).")
  endif()
  target_compile_options(rose_compile_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# The tests printed in chapters.
foreach(chapter IN LISTS ROSE_CHAPTER_TESTS)
  string(REPLACE "/" "_" name "test_${chapter}")
  set(torch "")
  if("torch" IN_LIST ROSE_LINKS_${chapter})
    set(torch TORCH)
  endif()
  rose_cpp_test(NAME ${name} SOURCES "${ROSE_GENERATED}/tests/${chapter}_test.cpp" ${torch})
  if(TARGET ${name})  # bench headers of labs/ use benchmarks/harness
    target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  endif()
  if("cuda" IN_LIST ROSE_LINKS_${chapter})
    rose_gpu_cases(${name})
  endif()
endforeach()

# Examples must compile; one with a recorded output must print it. Those that need LibTorch, or nvcc, are compiled where it is.
foreach(id IN LISTS ROSE_EXAMPLES)
  set(torch OFF)
  if("torch" IN_LIST ROSE_LINKS_${id})
    set(torch ON)
  endif()
  _rose_libraries(libraries ${torch})
  set(source "examples/${id}.cpp")
  if("examples/${id}.cu" IN_LIST ROSE_FILES)
    set(source "examples/${id}.cu")
    if(NOT ROSE_HAVE_CUDA)
      continue()
    endif()
  endif()
  if(NOT libraries)
    continue()
  endif()
  if(${id} IN_LIST ROSE_EXAMPLE_OUTPUTS)
    add_executable(example_${id} "${ROSE_GENERATED}/${source}")
    _rose_register(example_${id} LABELS unit COMMAND "${CMAKE_COMMAND}" "-DPROGRAM=$<TARGET_FILE:example_${id}>"
      "-DEXPECT=${PROJECT_SOURCE_DIR}/generated/examples/${id}.out" -P "${PROJECT_SOURCE_DIR}/cmake/ExpectOutput.cmake")
  else()
    add_library(example_${id} OBJECT "${ROSE_GENERATED}/${source}")
  endif()
  target_link_libraries(example_${id} PRIVATE ${libraries})
  _rose_after_lines(example_${id})
endforeach()

# Failing examples must not compile, and must say why in the words that the chapter expects.
foreach(id IN LISTS ROSE_FAILS)
  _rose_register(fail_${id} LABELS unit COMMAND "${CMAKE_COMMAND}"
    "-DCOMPILER=${CMAKE_CXX_COMPILER}" "-DINCLUDE=${ROSE_GENERATED}" "-DSOURCE=${ROSE_GENERATED}/fail/${id}.cpp"
    "-DEXPECT=${ROSE_FAIL_EXPECT_${id}}" -P "${PROJECT_SOURCE_DIR}/cmake/ExpectCompileError.cmake")
endforeach()

# An exercise's stub must fail its test, its solution must pass it.
foreach(id IN LISTS ROSE_EXERCISES)
  set(torch "")
  if("torch" IN_LIST ROSE_LINKS_${id})
    set(torch TORCH)
  endif()
  foreach(kind IN ITEMS stub solution)
    rose_cpp_test(NAME exercise_${id}_${kind} SOURCES "${ROSE_GENERATED}/exercises/${id}_${kind}.cpp" ${torch})
    if(TARGET exercise_${id}_${kind})  # with the headers of their chapter's tests
      target_include_directories(exercise_${id}_${kind} PRIVATE "${PROJECT_SOURCE_DIR}")
    endif()
  endforeach()
  if(TARGET exercise_${id}_stub)
    set_tests_properties(exercise_${id}_stub PROPERTIES WILL_FAIL ON)
  endif()
endforeach()

# Tests that belong to no chapter: every folder of tests/ that has a CMakeLists.txt.
file(GLOB _rose_test_folders CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/*/CMakeLists.txt")
foreach(_file IN LISTS _rose_test_folders)
  get_filename_component(_folder "${_file}" DIRECTORY)
  add_subdirectory("${_folder}")
endforeach()
