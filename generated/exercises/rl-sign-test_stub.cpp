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

// How surprising is this unevenness?
double sign_test(int, int) {
  return 0;
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
