// An exercise of the chapter "Derivations step by step: from the theorem to an estimator".

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
#include "labs/rl/examples.h"

namespace rose::labs {
namespace {

// Rewards weighted by the squared length of the score.
double best_baseline(const std::vector<double>& p, const std::vector<double>& r) {
  double squares = 0, above = 0, below = 0;
  for (const double x : p) squares += x * x;
  for (std::size_t a = 0; a < p.size(); ++a) {
    const double length = 1 - 2 * p[a] + squares;
    above += p[a] * length * r[a];
    below += p[a] * length;
  }
  return above / below;
}

// No constant in a fine grid is better.
TEST(BestBaseline, BeatsEveryOther) {
  const std::vector<double> p = {0.6, 0.3, 0.1}, r = {1, 0, 3};
  const auto second_moment = [&](double b) {  // the mean does not depend on b
    double sum = 0;
    for (std::size_t a = 0; a < 3; ++a) {
      for (std::size_t i = 0; i < 3; ++i)
        sum += p[a] * std::pow((r[a] - b) * ((i == a ? 1.0 : 0.0) - p[i]), 2);
    }
    return sum;
  };
  const double best = second_moment(best_baseline(p, r));
  for (double b = -1; b < 4; b += 0.001) EXPECT_LE(best, second_moment(b) + 1e-12);
  EXPECT_NEAR(best_baseline({0.5, 0.5}, {1, 0}), 0.5, 1e-12);
}

}  // namespace
}  // namespace rose::labs
