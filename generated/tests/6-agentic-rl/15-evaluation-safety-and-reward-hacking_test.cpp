// Tests of the chapter "Evaluation, safety and reward hacking".

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

// Exact coverage of two intervals.
double binomial(int n, int k, double p) {
  return std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) +
                  k * std::log(p) + (n - k) * std::log1p(-p));
}

TEST(Intervals, WilsonKeepsItsPromiseWhereTheTextbookDoesNot) {
  const int n = 89;
  for (const double p : {0.5, 0.9, 0.97}) {
    double textbook = 0, ours = 0;
    for (int c = 0; c <= n; ++c) {
      const double rate = double(c) / n, half = 1.96 * std::sqrt(rate * (1 - rate) / n);
      const Interval w = wilson(c, n);
      textbook += std::fabs(rate - p) <= half ? binomial(n, c, p) : 0;
      ours += w.low <= p && p <= w.high ? binomial(n, c, p) : 0;
    }
    const std::string at = std::to_string(static_cast<int>(std::lround(100 * p)));
    write_value("rl-coverage", "textbook-" + at, 100 * textbook);
    write_value("rl-coverage", "wilson-" + at, 100 * ours);
    EXPECT_GT(ours, 0.92);
  }
  const Interval w = wilson(54, 89);
  write_value("rl-coverage", "low", 100 * w.low);
  write_value("rl-coverage", "high", 100 * w.high);
  EXPECT_NEAR(std::pow(1 - 3.0 / 300, 300), 0.05, 0.001);
  EXPECT_NEAR(wilson(0, 300).high, 0.0126, 0.0001);
}

// Both estimators are unbiased, the shortcut is not.
TEST(Attempts, EstimatorsAreUnbiased) {
  EXPECT_NEAR(pass_at(10, 3, 2), 0.5333, 1e-4);
  EXPECT_NEAR(pass_at(10, 3, 5), 0.9167, 1e-4);
  EXPECT_NEAR(pass_all(10, 3, 2), 0.0667, 1e-4);
  EXPECT_NEAR(pass_all(10, 3, 3), 0.0083, 1e-4);
  EXPECT_EQ(pass_at(10, 8, 5), 1);
  const int n = 10;
  for (const double p : {0.05, 0.3, 0.8}) {
    for (const int k : {1, 4, 8}) {
      double one = 0, all = 0, shortcut = 0;
      for (int c = 0; c <= n; ++c) {
        one += binomial(n, c, p) * pass_at(n, c, k);
        all += binomial(n, c, p) * pass_all(n, c, k);
        shortcut += binomial(n, c, p) * (1 - std::pow(1 - double(c) / n, k));
      }
      EXPECT_NEAR(one, 1 - std::pow(1 - p, k), 1e-12);
      EXPECT_NEAR(all, std::pow(p, k), 1e-12);
      if (k == 8 && p == 0.05) {
        write_value("rl-passk", "truth", one);
        write_value("rl-passk", "shortcut", shortcut);
      }
      EXPECT_LE(shortcut, one + 1e-12);
    }
  }
  write_value("rl-passk", "equal", std::pow(0.604, 4));
  EXPECT_NEAR(1 - std::pow(0.5, 8), 0.996, 1e-3);
  EXPECT_NEAR(std::pow(0.5, 8), 0.004, 1e-4);
}

// Pairs, clusters and the winner's curse.
TEST(Differences, AgreeWithTheHand) {
  EXPECT_NEAR(std::sqrt(89) * std::sqrt(54.0 * 35 / 89 / 89 + 48.0 * 41 / 89 / 89), 6.6, 0.05);
  EXPECT_NEAR(2 * (binomial(10, 8, 0.5) + binomial(10, 9, 0.5) + binomial(10, 10, 0.5)), 0.109,
              1e-3);
  EXPECT_NEAR(2 * binomial(6, 6, 0.5), 0.031, 1e-3);
  EXPECT_NEAR(std::pow(2.8 * 0.4 / 0.02, 2), 3136, 1);

  core::Rng rng(1);  // 100 tasks of 8 attempts, half of them easy: naive and clustered errors
  std::vector<double> x;
  std::vector<std::size_t> task;
  Running naive;
  for (std::size_t t = 0; t < 100; ++t) {
    for (int attempt = 0; attempt < 8; ++attempt) {
      x.push_back(rng.uniform() < (t % 2 == 0 ? 0.9f : 0.1f) ? 1.0 : 0.0);
      task.push_back(t);
      naive.add(x.back());
    }
  }
  write_value("rl-differences", "naive", 100 * naive.standard_error());
  write_value("rl-differences", "clustered", 100 * clustered_error(x, task));
  EXPECT_GT(clustered_error(x, task), 2 * naive.standard_error());

  std::vector<double> difference;  // 60 tasks, two agents, the second better by 0.1 on average
  for (int t = 0; t < 60; ++t) {
    const double easy = rng.uniform();
    difference.push_back((rng.uniform() < std::min(1.0, easy + 0.1) ? 1.0 : 0.0) -
                         (rng.uniform() < easy ? 1.0 : 0.0));
  }
  Running formula, resampled;
  for (const double d : difference) formula.add(d);
  for (int trial = 0; trial < 4'000; ++trial) {
    double mean = 0;
    for (int t = 0; t < 60; ++t) mean += difference[rng.below(60)] / 60;
    resampled.add(mean);
  }
  EXPECT_NEAR(std::sqrt(resampled.variance()) / formula.standard_error(), 1, 0.06);

  Running winner;  // the largest of twenty
  for (int trial = 0; trial < 20'000; ++trial) {
    double best = -1e9;
    for (int i = 0; i < 20; ++i) best = std::max(best, double{rng.normal()});
    winner.add(best);
  }
  EXPECT_NEAR(winner.mean(), 1.87, 0.02);
  write_value("rl-differences", "curse", 100 * 1.87 * std::sqrt(0.25 / 200));
}

// What a grader asks for, and two accuracies of one answer.
TEST(Claims, AGraderDecidesWhoStaysSilent) {
  for (const int w : {0, 1, 3}) {
    const int cells = 100'000;
    double answered = 0, wrong = 0, earned = 0, always = 0;
    for (int i = 0; i < cells; ++i) {
      const double p = (i + 0.5) / cells, worth = p - (1 - p) * w;
      always += worth / cells;
      if (worth <= 0) continue;
      answered += 1.0 / cells;
      wrong += (1 - p) / cells;
      earned += worth / cells;
    }
    EXPECT_GE(earned, always);
    EXPECT_NEAR(answered, 1.0 / (1 + w), 1e-4);
    EXPECT_NEAR(wrong / answered, 0.5 / (1 + w), 1e-4);
    write_value("rl-claims", "coverage-" + std::to_string(w), 100 * answered);
    write_value("rl-claims", "risk-" + std::to_string(w), 100 * wrong / answered);
  }
  EXPECT_NEAR(std::pow(0.9, 5), 0.59, 0.001);
  const double third = 1.0 / 3, threshold = third / (1 + third);
  EXPECT_NEAR(1 - threshold, 0.75, 1e-12);          // answered at a price of a third
  EXPECT_NEAR(1 - (threshold - 0.1), 0.85, 1e-12);  // and when overconfident by 0.1
}

// The true reward rises, then falls, while the proxy only rises.
TEST(Hacking, TrueRewardRisesThenFalls) {
  const std::array proxy = {0.2, 0.6, 1.0}, truth = {0.2, 0.6, 0.0};
  const auto mean = [](const std::vector<double>& p, const std::array<double, 3>& r) {
    return p[0] * r[0] + p[1] * r[1] + p[2] * r[2];
  };
  for (const bool natural : {true, false}) {
    std::array z = {0.0, -1.0, std::log(1e-3)};
    const std::string name = natural ? "natural-" : "plain-";
    double best = 0, at_best = 0, last_proxy = 0;
    int turn = 0;
    for (int step = 0; step <= (natural ? 600 : 20'000); ++step) {
      const auto p = softmax(z);
      const double seen = mean(p, proxy), real = mean(p, truth);
      EXPECT_GE(seen, last_proxy);
      last_proxy = seen;
      if (real > best) best = real, at_best = p[2], turn = step;
      if (step == 0) write_value("rl-hacking", name + "start-true", real);
      for (std::size_t a = 0; a < 3; ++a) z[a] += (natural ? 0.05 : 0.5 * p[a]) * (proxy[a] - seen);
    }
    write_value("rl-hacking", name + "end-proxy", last_proxy);
    write_value("rl-hacking", name + "end-true", mean(softmax(z), truth));
    write_value("rl-hacking", name + "end-edits", 100 * softmax(z)[2]);
    write_value("rl-hacking", name + "best-true", best);
    write_value("rl-hacking", name + "best-edits", 100 * at_best);
    write_value("rl-hacking", name + "turn", turn);
    EXPECT_EQ(turn < 600, natural);
  }
}

TEST(Hacking, BestOfNIsThisFarAway) {
  double kl_by_sum = 0;
  const int n = 64, cells = 2'000'000;
  for (int i = 0; i < cells; ++i) {
    const double u = (i + 0.5) / cells, density = n * std::pow(u, n - 1);
    if (density > 0) kl_by_sum += density * std::log(density) / cells;
  }
  EXPECT_NEAR(kl_by_sum, std::log(64) - 63.0 / 64, 1e-6);
  EXPECT_NEAR(std::log(64) - 63.0 / 64, 3.17, 0.005);
  EXPECT_NEAR((0.62 - 0.2) / 0.7, 0.6, 1e-12);
}

// No fixed price buys the mixture; a price that adapts hovers around it.
TEST(Constraints, AreNotBoughtAtAFixedPrice) {
  const std::array gain = {0.5, 0.8, 1.0}, harm = {0.0, 0.1, 0.5};
  const auto best_at = [&](double price) {
    std::size_t best = 0;
    for (std::size_t a = 1; a < 3; ++a)
      if (gain[a] - price * harm[a] > gain[best] - price * harm[best]) best = a;
    return best;
  };
  EXPECT_EQ(best_at(0.2), 2u);
  EXPECT_EQ(best_at(2.9), 1u);
  EXPECT_EQ(best_at(3.1), 0u);
  // With a limit of 0.2: reckless in a quarter, quick in the rest, and a tie at a price of 0.5.
  EXPECT_NEAR(0.25 * harm[2] + 0.75 * harm[1], 0.2, 1e-12);
  EXPECT_NEAR(0.25 * gain[2] + 0.75 * gain[1], 0.85, 1e-12);
  EXPECT_NEAR(gain[2] - 0.5 * harm[2], gain[1] - 0.5 * harm[1], 1e-12);
  std::vector<double> z(3);
  double price = 0, mean_price = 0, mean_harm = 0, mean_gain = 0, outside = 0;
  const int warm = 5'000, steps = 200'000;
  for (int step = 0; step < warm + steps; ++step) {
    const auto p = softmax(z);
    double j = 0, c = 0;
    for (std::size_t a = 0; a < 3; ++a) j += p[a] * gain[a], c += p[a] * harm[a];
    for (std::size_t a = 0; a < 3; ++a)
      z[a] += 0.02 * (gain[a] - j - price * (harm[a] - c));  // the natural gradient
    price = std::max(0.0, price + 0.05 * (c - 0.02));
    if (step < warm) continue;
    mean_price += price / steps;
    mean_harm += c / steps;
    mean_gain += j / steps;
    outside += c > 0.02 ? 100.0 / steps : 0;
  }
  EXPECT_NEAR(mean_harm, 0.02, 0.002);
  EXPECT_NEAR(mean_price, 3, 0.2);
  write_value("rl-constraint", "price", mean_price);
  write_value("rl-constraint", "harm", 100 * mean_harm);
  write_value("rl-constraint", "gain", mean_gain);
  write_value("rl-constraint", "outside", outside);
}

// The least standard error of each benchmark.
TEST(Benchmarks, HaveALeastStandardError) {
  for (const int n : {2294, 1865, 1632, 1266, 1055, 812, 750, 500, 466, 369,
                      198,  116,  115,  114,  97,   89,  75,  50,  22,  20})
    write_value("rl-benchmarks", "se-" + std::to_string(n), 100 * std::sqrt(0.25 / n));
  EXPECT_NEAR(100 * std::sqrt(0.25 / 100), 5, 1e-12);
  const double both = std::sqrt(2 * 0.4 * 0.6 / 500);  // two agents near 40 %, unpaired
  write_value("rl-benchmarks", "difference", 100 * 1.96 * both);
}

}  // namespace
}  // namespace rose::labs
