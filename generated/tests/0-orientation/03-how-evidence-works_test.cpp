// Tests of the chapter "How evidence works here".

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

#include "labs/evidence/values.h"

namespace rose::labs {
namespace {

// A label agrees with a value to the precision in which it is written.
bool agrees(double written, int decimals, double scale, double stored) {
  const double half = 0.5 * std::pow(10.0, -decimals) * scale;
  return std::fabs(written * scale - stored) <= half * 1.0001;
}

TEST(Evidence, LabelsAgreeToTheirPrecision) {
  EXPECT_TRUE(agrees(2.1, 1, 1e12, 2.097152e12));
  EXPECT_FALSE(agrees(2.2, 1, 1e12, 2.097152e12));
  EXPECT_TRUE(agrees(2, 0, 1e12, 2.097152e12));
  EXPECT_TRUE(agrees(124, 0, 1e6, 124'439'808));
  EXPECT_FALSE(agrees(124.5, 1, 1e6, 124'439'808));
  EXPECT_TRUE(agrees(124.4, 1, 1e6, 124'439'808));
  EXPECT_FALSE(agrees(117, 0, 1e6, 124'439'808));
}

TEST(Evidence, InferencesFollowFromTheirFacts) {
  const double batch = 64.0 * 8 * 2048;
  EXPECT_EQ(batch, 1'048'576);
  EXPECT_EQ(batch * 2'000'000, 2.097152e12);
  EXPECT_EQ(batch * 1'000'000 + batch / 2 * 1'000'000, 1.572864e12);  // half of it on 32 replicas
}

TEST(Evidence, ValuesAreKeptSideBySide) {
  const auto folder = std::filesystem::temp_directory_path() / "rose-values-test";
  ::setenv("ROSE_VALUES", folder.c_str(), 1);
  write_value("some-test", "b", 2.5);
  write_value("some-test", "a", 0.1);
  ::unsetenv("ROSE_VALUES");
  std::ifstream file(folder / "some-test.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(text, "{\n  \"a\": 0.10000000000000001,\n  \"b\": 2.5\n}\n");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace rose::labs
