// An exercise of the chapter "Data and environments".

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
#include "labs/information/information.h"
#include "labs/rl/desk.h"
#include "labs/rl/statistics.h"
#include "rose/core/rng.h"

namespace rose::labs {
namespace {

// Split by whole groups.
std::vector<bool> split_whole(const std::vector<std::string>& groups, double) {
  return std::vector<bool>(groups.size(), false);
}

// No group is on both sides, and none too many.
TEST(SplitWhole, KeepsGroupsTogether) {
  const std::vector<std::string> groups = {"a", "b", "a", "c", "b", "a", "d", "d"};
  EXPECT_EQ(split_whole(groups, 0.3),
            (std::vector<bool>{true, false, true, false, false, true, false, false}));
  EXPECT_EQ(split_whole(groups, 0.4),
            (std::vector<bool>{true, true, true, false, true, true, false, false}));
  EXPECT_EQ(split_whole(groups, 0), std::vector<bool>(8, false));
  EXPECT_EQ(split_whole(groups, 1), std::vector<bool>(8, true));
}

}  // namespace
}  // namespace rose::labs
