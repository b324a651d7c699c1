// An exercise of the chapter "Returns and advantages, in code".

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
#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/rlhf/group_advantages.h"
#include "rose/rlhf/returns.h"
#include "rose/rlhf/token_advantages.h"

namespace rose::rlhf {
namespace {

// Sums of standardised step rewards.
using Steps = std::vector<std::vector<double>>;

Steps process_advantages(const Steps& rewards) {
  return rewards;
}

// A step is charged with what follows it.
TEST(ProcessAdvantages, SumWhatFollows) {
  const Steps found = process_advantages({{0, 1}, {1}, {0, 0, 1, 1}});
  const double d = std::sqrt(12.0 / 49), low = -4.0 / 7 / d, high = 3.0 / 7 / d;
  EXPECT_NEAR(found[0][0], low + high, 1e-12);
  EXPECT_NEAR(found[1][0], high, 1e-12);
  EXPECT_NEAR(found[2][0], 2 * low + 2 * high, 1e-12);
  EXPECT_EQ(process_advantages({{1, 1}, {1}})[0][0], 0);
}

}  // namespace
}  // namespace rose::rlhf
