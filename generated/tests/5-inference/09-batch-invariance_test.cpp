// Tests of the chapter "Batch invariance".

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

namespace rose::infer {
namespace {

// A sum that asks how many neighbours there are.
float sum_of_products(const std::vector<float>& x, const std::vector<float>& w, int splits) {
  float total = 0;
  const std::size_t part = x.size() / static_cast<std::size_t>(splits);
  for (std::size_t s = 0; s < static_cast<std::size_t>(splits); ++s) {
    float partial = 0;
    for (std::size_t k = s * part; k < (s + 1) * part; ++k) partial += x[k] * w[k];
    total += partial;
  }
  return total;
}

TEST(Invariance, TheBatchChoosesTheOrder) {
  const auto splits_for = [](int rows) { return rows < 64 ? 4 : 1; };
  core::Rng rng(9);
  int differ = 0;
  double ulps = 0;
  constexpr int outputs = 1000;
  std::vector<float> x(3072), w(3072);
  for (float& v : x) v = rng.normal();
  for (int n = 0; n < outputs; ++n) {
    for (float& v : w) v = rng.normal() * 0.02F;
    const float alone = sum_of_products(x, w, splits_for(1));
    const float crowded = sum_of_products(x, w, splits_for(64));
    differ += alone != crowded;
    ulps += std::abs(alone - crowded) / 0x1p-23 / outputs;  // the sums' standard deviation is 1.1
  }
  EXPECT_EQ(sum_of_products(x, w, splits_for(2)), sum_of_products(x, w, splits_for(63)));
  const char* id = "invariance-splits";
  labs::write_value(id, "percent", std::round(100.0 * differ / outputs));
  labs::write_value(id, "ulps", std::round(ulps));
}

// How soon two texts part.
TEST(Invariance, SmallDifferencesFlipTheChoice) {
  constexpr int vocabulary = 4096, trials = 40000;
  constexpr double sigma = 2, s = 0.02;
  const auto tail = [](double x) { return 0.5 * std::erfc(x / std::numbers::sqrt2); };
  const auto density = [](double x) {
    return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
  };
  double low = 0, high = 10;  // the level that one logit is expected to exceed
  for (int i = 0; i < 60; ++i)
    (tail((low + high) / 2) * vocabulary > 1 ? low : high) = (low + high) / 2;
  const double hazard = density(low) / tail(low);
  const double formula = hazard * s / (std::sqrt(2 * std::numbers::pi) * sigma);

  core::Rng rng(17);
  double flips = 0;
  for (int t = 0; t < trials; ++t) {
    // The highest of n uniform numbers is u^(1/n); the next, below it, the same with n - 1. Their normal quantiles are the
    // two largest of n normal numbers.
    const double first = std::log(rng.uniform() + 0x1p-25) / vocabulary;
    const double second = first + std::log(rng.uniform() + 0x1p-25) / (vocabulary - 1);
    const auto quantile = [&](double log_u) {
      const double upper = -std::expm1(log_u);  // probability above
      double a = 0, b = 10;
      for (int i = 0; i < 40; ++i) (tail((a + b) / 2) > upper ? a : b) = (a + b) / 2;
      return a;
    };
    const double gap = sigma * (quantile(first) - quantile(second));
    flips += tail(gap / s);  // the probability that D exceeds the gap
  }
  const double measured = flips / trials;
  EXPECT_NEAR(low, 3.49, 0.01);
  EXPECT_NEAR(hazard, 3.74, 0.005);
  EXPECT_NEAR(measured / formula, 1, 0.1);  // 4,096 is not infinite, 40,000 neither
  const char* id = "invariance-flips";
  labs::write_value(id, "formula", std::round(1e3 * formula) / 1e3);
  labs::write_value(id, "measured", std::round(1e3 * measured) / 1e3);
  labs::write_value(id, "trials", trials);
  labs::write_value(id, "half", std::round(std::log(0.5) / std::log1p(-formula)));
}

}  // namespace
}  // namespace rose::infer
