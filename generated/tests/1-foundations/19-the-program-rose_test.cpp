// Tests of the chapter "One program, rose".

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rose/app/cli.h"
#include "rose/app/engine_commands.h"
#include "rose/app/engine_options.h"
#include "rose/app/models.h"
#include "rose/app/rose_commands.h"
#include "rose/core/error.h"
#include "rose/kernels/device.h"

namespace rose::app {
namespace {

// Every kind of failure has its own exit status.
TEST(Cli, EveryKindOfFailureHasItsExitStatus) {
  using core::Code;
  const std::pair<Code, int> expected[] = {{Code::internal, 1},    {Code::invalid_argument, 2},
                                           {Code::not_found, 3},   {Code::corrupt, 4},
                                           {Code::unsupported, 5}, {Code::io, 6},
                                           {Code::cancelled, 130}};
  for (const auto& [code, status] : expected) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(guarded([code = code] { throw core::Error(code, "words"); }), status);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "rose: words\n");
  }
}

TEST(Cli, TextThatIsNotUtf8IsRefusedWithItsPlace) {
  EXPECT_NO_THROW(require_utf8("Grüße", "the text"));
  try {
    require_utf8("caf\xe9", "argument 2");
    FAIL();
  } catch (const core::Error& error) {
    EXPECT_EQ(error.argument(), "argument 2");
    EXPECT_NE(error.message().find("byte 3 (0xe9)"), std::string::npos);
  }
}

// Starts a process that runs `action`; returns its number and how it ended.
std::pair<pid_t, int> ended(void (*action)()) {
  const pid_t child = ::fork();
  if (child == 0) {
    action();
    ::_exit(99);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return {child, status};
}

TEST(Exec, KeepsNumberSignalAndStatus) {
  const auto [replaced, status] = ended([] {
    // Exits with 7 when its number is that of the process that was started.
    const std::string script = "test $$ = " + std::to_string(::getpid()) + " && exit 7";
    ::execl("/bin/sh", "sh", "-c", script.c_str(), nullptr);
  });
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_TRUE(
      WIFSIGNALED(ended([] { ::execl("/bin/sh", "sh", "-c", "kill -INT $$", nullptr); }).second));
}

TEST(Exec, AParentSeesANumberInstead) {
  const auto [parent, status] = ended([] {
    const int inner = std::system("kill -INT $$");  // a child of this process, and not this process
    ::_exit(WIFSIGNALED(inner) ? 0 : 1);
  });
  EXPECT_FALSE(WIFSIGNALED(status));  // the shell above is told that all went well
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace rose::app
