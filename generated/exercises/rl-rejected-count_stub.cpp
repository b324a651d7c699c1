// An exercise of the chapter "Algorithm families side by side".

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
#include "labs/rl/estimators.h"
#include "labs/rl/gates.h"

namespace rose::labs {
namespace {

// Reject, and choose the denominator.
std::vector<double> rejecting(const std::vector<double>& now, const std::vector<double>&,
                              const std::vector<double>&, double, double, bool) {
  return std::vector<double>(now.size(), 1.0);
}

// With half of the tokens rejected the step doubles.
TEST(Rejecting, DoublesTheStepWhenHalfIsRejected) {
  const std::vector<double> now = {-1.0, -0.5, -0.7, -0.2}, engine = {-1.0, -0.5, -1.7, -1.2};
  const std::vector<double> advantage = {1, -0.5, 1, 1};
  const auto all = rejecting(now, engine, advantage, 0.5, 2, true);
  const auto kept = rejecting(now, engine, advantage, 0.5, 2, false);
  EXPECT_EQ(all, (std::vector<double>{0.25, -0.125, 0, 0}));
  EXPECT_EQ(kept, (std::vector<double>{0.5, -0.25, 0, 0}));
  EXPECT_EQ(rejecting(now, engine, advantage, 9, 10, false), (std::vector<double>{0, 0, 0, 0}));
}

}  // namespace
}  // namespace rose::labs
