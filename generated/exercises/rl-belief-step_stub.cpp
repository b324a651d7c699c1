// An exercise of the chapter "Mathematical foundations: decisions in time".

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
#include "labs/rl/examples.h"
#include "labs/rl/process.h"

namespace rose::labs {
namespace {

// What to believe after an observation.
std::vector<double> next_belief(const Process&, const std::vector<double>& belief, std::size_t,
                                std::size_t) {
  return belief;
}

// One test, two tests that contradict each other, and the impossible.
TEST(NextBelief, FollowsBayes) {
  const Process service = broken_service(3);
  const auto config = next_belief(service, {0.7, 0.3}, 0, 1);
  ASSERT_EQ(config.size(), 2u);
  EXPECT_NEAR(config[1], 0.24 / 0.38, 1e-12);
  const auto both = next_belief(service, config, 0, 0);
  EXPECT_NEAR(both[0], 0.7, 1e-12);
  EXPECT_TRUE(next_belief(service, {0.7, 0.3}, 0, 5).empty());
  EXPECT_TRUE(next_belief(service, {0.7, 0.3}, 1, 0).empty());  // a fix ends the episode
}

}  // namespace
}  // namespace rose::labs
