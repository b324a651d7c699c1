# cmake -DCOMPILER= -DINCLUDE= -DSOURCE= -DEXPECT=regex -P …: passes when SOURCE does not compile and the messages match.
execute_process(COMMAND "${COMPILER}" -std=c++20 -fsyntax-only "-I${INCLUDE}" "${SOURCE}"
  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(status EQUAL 0)
  message(FATAL_ERROR "${SOURCE}:1: error: this was expected not to compile, and it does")
endif()
if(NOT output MATCHES "${EXPECT}")
  message(FATAL_ERROR "${SOURCE}:1: error: it does not compile, but no message matches\n  ${EXPECT}\nThe compiler said:\n${output}")
endif()
