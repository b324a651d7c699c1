// An exercise of the chapter "Evaluation, safety and reward hacking".

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

#include <complex>

#include "labs/evidence/values.h"
#include "labs/information/information.h"
#include "labs/rl/statistics.h"
#include "rose/core/rng.h"

namespace rose::labs {
namespace {

// Twice the tail of a fair coin.
double sign_test(int wins, int losses) {
  const int n = wins + losses, few = std::min(wins, losses);
  double tail = 0;
  for (int k = 0; k <= few; ++k)
    tail += std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) -
                     n * std::log(2.0));
  return std::min(1.0, 2 * tail);
}

// The numbers that were computed by hand.
TEST(SignTest, AgreesWithTheHand) {
  EXPECT_NEAR(sign_test(8, 2), 2 * 56.0 / 1024, 1e-12);
  EXPECT_NEAR(sign_test(2, 8), 2 * 56.0 / 1024, 1e-12);
  EXPECT_NEAR(sign_test(6, 0), 2.0 / 64, 1e-12);
  EXPECT_EQ(sign_test(5, 5), 1);
  EXPECT_EQ(sign_test(0, 0), 1);
}

}  // namespace
}  // namespace rose::labs
