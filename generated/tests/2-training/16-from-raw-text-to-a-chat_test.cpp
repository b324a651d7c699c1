// Tests of the chapter "From raw text to a chat".

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

#include <map>
#include <string>

#include "labs/evidence/values.h"

namespace rose::labs {
namespace {

// How fast LZW's table grows.
std::size_t lzw_codes(const std::string& text) {
  std::map<std::string, std::size_t> table;
  for (int byte = 0; byte < 256; ++byte)
    table.emplace(std::string(1, static_cast<char>(byte)), table.size());
  std::size_t codes = 0;
  std::string known;
  for (const char c : text) {
    if (table.contains(known + c)) {
      known += c;
      continue;
    }
    ++codes;
    table.emplace(known + c, table.size());
    known = c;
  }
  return codes + (known.empty() ? 0 : 1);
}

TEST(RawText, LzwFindsRepetition) {
  EXPECT_EQ(lzw_codes("aaa"), 2U);                 // a, aa
  EXPECT_EQ(lzw_codes(std::string(10, 'a')), 4U);  // 1 + 2 + 3 + 4
  const std::size_t same = lzw_codes(std::string(65536, 'a'));
  EXPECT_EQ(same, 362U);  // the least k with k (k + 1) / 2 >= 65,536
  std::string pairs;      // no two neighbours occur twice
  for (int a = 0; a < 16; ++a)
    for (int b = a + 1; b < 16; ++b) pairs += {static_cast<char>(a), static_cast<char>(b + 16 * a)};
  EXPECT_GT(lzw_codes(pairs), pairs.size() * 9 / 10);
  write_value("raw-text-lzw-test", "same", static_cast<double>(same));
}

// One in sixteen, written twice.
TEST(RawText, HoldsOutEverySixteenth) {
  const auto held = [](std::size_t i, double share) {
    return std::floor(static_cast<double>(i + 1) * share) >
           std::floor(static_cast<double>(i) * share);
  };
  std::size_t in_single = 0;
  for (std::size_t i = 0; i < 100'000; ++i) {
    EXPECT_EQ(held(i, 0.0625), i % 16 == 15);
    EXPECT_EQ(held(i, 0.0625), held(i, 0.0625f));
    in_single +=
        held(i, 0.03) != held(i, 0.03f);  // the share in single precision is another number
  }
  EXPECT_GT(in_single, 0U);
}

}  // namespace
}  // namespace rose::labs
