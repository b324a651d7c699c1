// Tests of the chapter "How the book tangles".

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

// The example worked by hand.
TEST(MiniTangle, TheExampleWorkedByHand) {
  const std::string book =
      "Words.\n```cpp {#root}\nint f() {\n  <<body>>\n}\n```\n"
      "```cpp {#body}\nif (x) {\n  <<deep>>\n}\n```\n"
      "More words.\n```cpp {#body}\n\nreturn 2;\n```\n```cpp {#deep}\nreturn 1;\n```\n";
  EXPECT_EQ(tangle(book, "root"), "int f() {\n  if (x) {\n    return 1;\n  }\n\n  return 2;\n}\n");
}

// Launches and shifts are code.
TEST(MiniTangle, LaunchesAndShiftsAreCode) {
  for (const char* line : {"kernel<<<grid, block>>>();", "std::cout << x;", "a >> b", "<<<x>>>",
                           "<<a b>>", "<<a>> // note", "<<>>"}) {
    EXPECT_EQ(reference_in(line), "") << line;
  }
  EXPECT_EQ(reference_in("    <<a-chunk>>"), "a-chunk");
}

// A cycle is found and its way shown.
TEST(MiniTangle, ACycleIsFoundAndItsWayShown) {
  const std::string book =
      "```cpp {#a}\n<<b>>\n```\n```cpp {#b}\n<<c>>\n```\n```cpp {#c}\n<<b>>\n```\n";
  EXPECT_THAT([&] { tangle(book, "a"); },
              testing::ThrowsMessage<std::runtime_error>(testing::HasSubstr("a -> b -> c -> b")));
}

// Ten chunks that use the next one twice are a thousand lines.
TEST(MiniTangle, TenChunksThatUseTheNextOneTwiceAreAThousandLines) {
  std::string book = "```cpp {#c10}\nx\n```\n";
  for (int i = 0; i < 10; ++i) {
    const std::string next = "<<c" + std::to_string(i + 1) + ">>\n";
    book += "```cpp {#c" + std::to_string(i) + "}\n" + next + next + "```\n";
  }
  const std::string out = tangle(book, "c0");
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 1024);
}

}  // namespace
}  // namespace rose::labs
