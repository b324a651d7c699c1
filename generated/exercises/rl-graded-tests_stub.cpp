// An exercise of the chapter "Rewards and verifiers".

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
#include "labs/rl/estimators.h"
#include "labs/rl/verifier.h"
#include "rose/core/rng.h"

namespace rose::labs {
namespace {

// Points for a group and all easier ones.
double strict_score(const std::vector<std::vector<bool>>&, const std::vector<double>&) {
  return -1;
}

// A hard group without an easy one earns nothing.
TEST(StrictScore, NeedsTheEasierGroups) {
  const std::vector<double> points = {1, 2, 4};
  EXPECT_EQ(strict_score({{true, true}, {true}, {true}}, points), 7);
  EXPECT_EQ(strict_score({{true, true}, {false}, {true}}, points), 1);
  EXPECT_EQ(strict_score({{true, false}, {true}, {true}}, points), 0);
  EXPECT_EQ(strict_score({{}, {true}, {true, false}}, points), 3);
  EXPECT_EQ(strict_score({}, {}), 0);
}

}  // namespace
}  // namespace rose::labs
