#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <memory>
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
#include <utility>
#include <vector>

#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/json.h"
#include "rose/core/hash.h"
#include "rose/core/utf8.h"
#include "rose/core/parallel.h"
#include "rose/core/log.h"
#include "rose/core/progress.h"

namespace rose::core {
namespace {

// An error names its parts on a terminal and in one line.
TEST(Error, NamesItsParts) {
  try {
    throw Error(Code::corrupt, "the file ends inside its tensor table")
        .in("model.gguf")
        .hint("download it again");
  } catch (const std::exception& error) {
    EXPECT_STREQ(error.what(),
                 "model.gguf: the file ends inside its tensor table (download it again)");
    EXPECT_EQ(describe(error),
              "the file ends inside its tensor table\n  in: model.gguf\n  help: download it again");
    EXPECT_EQ(exit_code(error), 4);
  }
}

TEST(Error, CopiesWithoutThrowing) {
  static_assert(std::is_nothrow_copy_constructible_v<Error>);
  const Error first = Error(Code::io, "a").in("b");
  const Error second = Error(first).in("c");  // the copy changes, the original does not
  EXPECT_STREQ(first.what(), "b: a");
  EXPECT_STREQ(second.what(), "c: a");
}

TEST(Error, ForeignExceptionsHaveExitCodesToo) {
  EXPECT_EQ(exit_code(std::bad_alloc()), 6);
  EXPECT_EQ(exit_code(std::runtime_error("?")), 1);
  EXPECT_EQ(exit_code(std::filesystem::filesystem_error("?", std::error_code())), 6);
  EXPECT_THAT(describe(std::bad_alloc()), testing::StartsWith("out of memory"));
  EXPECT_EQ(exit_code(Code::cancelled), 130);
}

}  // namespace
}  // namespace rose::core

