// An exercise of the chapter "How the book tangles".

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

#include "labs/tangle/mini.h"

namespace rose::labs {
namespace {

// Name the chunks that are not in the program.
std::vector<std::string> unused(const Chunks&, const std::string&) {
  return {};
}

// Two chunks that use each other alone are unused.
TEST(MiniTangleUnused, TwoChunksThatUseEachOtherAloneAreUnused) {
  const Chunks chunks = {
      {"root", {"<<used>>"}}, {"used", {"x"}}, {"a", {"<<b>>"}}, {"b", {"<<a>>"}}};
  EXPECT_EQ(unused(chunks, "root"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(unused(chunks, "a"), (std::vector<std::string>{"root", "used"}));
}

}  // namespace
}  // namespace rose::labs
