# cmake -DPROGRAM= -DEXPECT=file -P …: passes when PROGRAM succeeds and prints exactly what the file holds.
execute_process(COMMAND "${PROGRAM}" RESULT_VARIABLE status OUTPUT_VARIABLE output)
file(READ "${EXPECT}" expected)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${EXPECT}:1: error: the example ended with status ${status}")
endif()
if(NOT output STREQUAL expected)
  message(FATAL_ERROR "${EXPECT}:1: error: the example prints something else than the chapter shows:\n${output}")
endif()
