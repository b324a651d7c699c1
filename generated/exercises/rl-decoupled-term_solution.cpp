// An exercise of the chapter "Surrogates and divergences: how far to step".

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
#include "labs/rl/gates.h"

namespace rose::labs {
namespace {

// The weight scales both; the clip takes the slope away.
std::pair<double, double> decoupled(double now, double old, double engine, double advantage,
                                    double epsilon, double cap) {
  const double weight = std::min(cap, std::exp(old - engine)), ratio = std::exp(now - old);
  const double bound = std::clamp(ratio, 1 - epsilon, 1 + epsilon);
  const bool open = ratio * advantage <= bound * advantage;
  return {weight * advantage * (open ? ratio : bound), open ? weight * advantage * ratio : 0.0};
}

// Both signs, inside and outside, and the cap.
TEST(Decoupled, HasTwoAnchors) {
  const auto inside = decoupled(-0.9, -1.0, -1.05, 1, 0.2, 1.02);
  EXPECT_NEAR(inside.first, 1.02 * std::exp(0.1), 1e-12);
  EXPECT_NEAR(inside.second, inside.first, 1e-12);
  const auto capped = decoupled(-0.3, -0.7, -0.6, 1, 0.2, 1.02);  // the ratio is 1.49
  EXPECT_NEAR(capped.first, std::exp(-0.1) * 1.2, 1e-12);
  EXPECT_EQ(capped.second, 0);
  const auto down = decoupled(-0.3, -0.7, -0.7, -1, 0.2, 5);  // bad and likelier: still pushed
  EXPECT_NEAR(down.second, -std::exp(0.4), 1e-12);
  EXPECT_EQ(decoupled(-1.4, -1.0, -1.0, -1, 0.2, 5).second, 0);  // bad and rarer already
}

}  // namespace
}  // namespace rose::labs
