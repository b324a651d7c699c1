// Tests of the chapter "Scaling laws and budgets".

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

#include <cmath>

#include "labs/evidence/values.h"
#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/trainer/scaling_law.h"

namespace rose::trainer {
namespace {

// A law is found again.

/// Chinchilla's law as it was published, and as it was fitted again to the same points.
constexpr ScalingLaw chinchilla{1.6934, 406.4, 410.7, 0.3392, 0.2849};
constexpr ScalingLaw refitted{1.8172, 482.01, 2085.43, 0.3478, 0.3658};

std::vector<ScalingRun> runs_of(const ScalingLaw& law, double noise, double least_tokens,
                                double most_tokens, std::uint64_t seed = 1) {
  core::Rng rng(seed);
  std::vector<ScalingRun> runs;
  for (double n = 1e6; n < 2e8; n *= 3) {
    for (double d = least_tokens; d <= most_tokens; d *= 2)
      runs.push_back({n, d, law.loss(n, d) * (1 + noise * rng.normal())});
  }
  return runs;
}

TEST(ScalingLaw, IsFoundAgain) {
  for (const ScalingLaw& law : {chinchilla, refitted}) {
    const ScalingLaw found = fit_scaling_law(runs_of(law, 0.0, 1e8, 1e10));
    EXPECT_NEAR(found.alpha, law.alpha, 1e-4);
    EXPECT_NEAR(found.beta, law.beta, 1e-4);
    EXPECT_NEAR(found.floor, law.floor, 1e-3);
    EXPECT_NEAR(found.size / law.size, 1.0, 0.01);
    EXPECT_NEAR(found.data / law.data, 1.0, 0.01);
    for (const double flops : {1e18, 1e21, 1e24}) {
      const Budget best = law.best(flops);
      const double least = law.loss(best.parameters, best.tokens);
      for (const double factor : {0.5, 0.9, 1.1, 2.0}) {
        const double n = best.parameters * factor;
        EXPECT_GT(law.loss(n, flops / 6 / n), least);
      }
      EXPECT_NEAR(law.best(100 * flops).parameters / best.parameters, std::pow(100, law.growth()),
                  1e-6 * best.parameters);
    }
  }
  const double flops = 6 * 70e9 * 1.4e12;  // of Chinchilla itself
  constexpr ScalingLaw rounded{1.69, 406.4, 410.7, 0.34, 0.28};
  for (const auto& [name, law] :
       {std::pair{"published", chinchilla}, {"refitted", refitted}, {"rounded", rounded}}) {
    const Budget best = law.best(flops), twice{2 * best.parameters, best.tokens / 2};
    labs::write_value("scaling-law-test", std::string(name) + "-growth", law.growth());
    labs::write_value("scaling-law-test", std::string(name) + "-ratio",
                      best.tokens / best.parameters);
    labs::write_value(
        "scaling-law-test", std::string(name) + "-twice-percent",
        100 * (law.loss(twice.parameters, twice.tokens) / law.loss(best.parameters, best.tokens) -
               1));
  }
}

// What noise, a short range and one bad run do.
double width_of_beta(const std::vector<ScalingRun>& runs) {
  std::vector<double> values;
  for (const ScalingLaw& law : resampled_laws(runs, 60)) values.push_back(law.beta);
  std::ranges::sort(values);
  EXPECT_LE(values[1], refitted.beta);
  EXPECT_GE(values[58], refitted.beta);
  return values[58] - values[1];
}

TEST(ScalingLaw, IntervalsDependOnTheRange) {
  const double wide = width_of_beta(runs_of(refitted, 0.005, 1e8, 1.3e10));
  const double narrow = width_of_beta(runs_of(refitted, 0.005, 1e8, 4e8));
  EXPECT_GT(narrow, 2 * wide);
  labs::write_value("scaling-noise-test", "wide", wide);
  labs::write_value("scaling-noise-test", "narrow", narrow);
}

TEST(ScalingLaw, OneBadRunDoesNotBendIt) {
  std::vector<ScalingRun> runs = runs_of(refitted, 0.0, 1e8, 1e10);
  runs[5].loss *= 1.15;
  const double robust = std::abs(fit_scaling_law(runs).beta - refitted.beta);
  const double squares = std::abs(fit_scaling_law(runs, 1e9).beta - refitted.beta);
  EXPECT_LT(robust, squares / 3);
}

TEST(ScalingLaw, RefusesWhatCannotBeFitted) {
  const std::vector<ScalingRun> runs = runs_of(refitted, 0.0, 1e8, 1e10);
  EXPECT_THROW(fit_scaling_law(std::span(runs).first(7)), core::Error);  // one size
  std::vector<ScalingRun> broken = runs;
  broken[3].loss = std::nan("");
  EXPECT_THROW(fit_scaling_law(broken), core::Error);
  EXPECT_THROW(resampled_laws(std::span(runs).first(4), 3), core::Error);
}

// One law, counted in two ways.
double growth_when_counted(double from_flops, double to_flops, double embedding) {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (double flops = from_flops; flops <= to_flops; flops *= 1.5) {
    double best_loss = 1e9, best_blocks = 0;
    for (double blocks = 100; blocks < 1e13; blocks *= 1.01) {
      const double all = blocks + embedding * std::cbrt(blocks);
      const double loss = refitted.loss(all, flops / 6 / blocks);
      if (loss < best_loss) best_loss = loss, best_blocks = blocks;
    }
    const double u = std::log(flops), v = std::log(best_blocks);
    n += 1, x += u, y += v, xx += u * u, xy += u * v;
  }
  return (n * xy - x * y) / (n * xx - x * x);
}

TEST(ScalingLaw, CountingDecidesTheExponent) {
  constexpr double embedding = 47491;  // of a vocabulary of 32,000 and the usual proportions
  const double small = growth_when_counted(1e13, 1e20, embedding);
  const double large = growth_when_counted(1e25, 1e28, embedding);
  const double all = growth_when_counted(1e13, 1e20, 0.0);
  EXPECT_NEAR(all, refitted.growth(), 0.005);
  EXPECT_GT(small, 0.7);
  EXPECT_LT(large, 0.55);
  labs::write_value("scaling-kaplan-test", "small", small);
  labs::write_value("scaling-kaplan-test", "large", large);
}

}  // namespace
}  // namespace rose::trainer
