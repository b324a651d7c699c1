// An exercise of the chapter "A whole loop, small enough to read".

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
#include "rose/core/rng.h"
#include "rose/rlhf/toy.h"
#include "rose/rlhf/toy_policy.h"
#include "rose/rlhf/toy_world.h"
#include "rose/rlhf/trajectory_file.h"

namespace rose::rlhf {
namespace {

// The share of groups that teach.
double informative(double, int) {
  return 1;
}

// Half way teaches most.
TEST(ToyGroups, TeachMostHalfWay) {
  EXPECT_NEAR(informative(0.5, 2), 0.5, 1e-12);
  EXPECT_NEAR(informative(0.95, 16), 1 - std::pow(0.95, 16) - std::pow(0.05, 16), 1e-12);
  EXPECT_EQ(informative(1, 8), 0);
}

}  // namespace
}  // namespace rose::rlhf
