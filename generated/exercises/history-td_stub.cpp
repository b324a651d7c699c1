// An exercise of the chapter "History: where the pieces come from".

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

namespace rose::labs {
namespace {

// Learn a guess from the next guess.
void learn(std::array<double, 5>&, const std::vector<std::size_t>& /*walk*/, bool /*won*/,
           double /*rate*/) {}

// By hand, and then until the guesses agree with each other.
TEST(HistoryTd, LearnsFromTheNextGuess) {
  std::array<double, 5> v = {0.5, 0.5, 0.5, 0.5, 0.5};
  learn(v, {2, 3, 4}, true, 0.1);
  EXPECT_NEAR(v[4], 0.55, 1e-12);  // only the last step has taught anything
  EXPECT_NEAR(v[3], 0.5, 1e-12);
  learn(v, {2, 3, 4}, true, 0.1);
  EXPECT_NEAR(v[4], 0.595, 1e-12);
  EXPECT_NEAR(v[3], 0.505, 1e-12);  // now the news has moved one place back
  EXPECT_NEAR(v[2], 0.5, 1e-12);
  learn(v, {2, 3, 4}, true, 0.1);
  EXPECT_GT(v[2], 0.5);  // the third walk reaches the middle
  // Three walks, again and again with a falling rate: the guesses become consistent.
  v.fill(0.5);
  for (int sweep = 0; sweep < 40'000; ++sweep) {
    const double rate = 20.0 / (200 + sweep);
    learn(v, {2, 3, 4}, true, rate);
    learn(v, {2, 1, 0}, false, rate);
    learn(v, {2, 3, 2, 1, 0}, false, rate);
  }
  EXPECT_NEAR(v[0], 0, 1e-3);
  EXPECT_NEAR(v[1], 0, 1e-3);
  EXPECT_NEAR(v[4], 1, 1e-3);
  EXPECT_NEAR(v[3], (v[4] + v[2]) / 2, 0.01);          // left twice: to 4, to 2
  EXPECT_NEAR(v[2], (2 * v[3] + 2 * v[1]) / 4, 0.01);  // left four times
}

}  // namespace
}  // namespace rose::labs
