// Tests of the chapter "Data and environments".

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
#include "labs/rl/statistics.h"
#include "rose/core/rng.h"

namespace rose::labs {
namespace {

// Replay, branch, leave nothing behind, tell an end from a cut.
std::map<int, Order> shop() {
  return {{1, {"lamp", "open"}}, {2, {"chair", "shipped"}}, {3, {"desk", "cancelled"}}};
}

Call random_call(core::Rng& rng) {
  static const std::array<std::string, 4> tools = {"look", "cancel", "refund", "say"};
  return {tools[rng.below(4)], 1 + static_cast<int>(rng.below(4)), "hello"};
}

TEST(Desk, KeepsItsPromises) {
  core::Rng rng(1);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<Call> calls;
    for (int i = 0; i < 12; ++i) calls.push_back(random_call(rng));
    Desk first(shop(), 20), second(shop(), 20);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const std::string seen = first.step(calls[i]).observation;
      EXPECT_EQ(seen, second.step(calls[i]).observation);
      if (i != 5) continue;
      Desk branch = first;  // a snapshot in the middle
      for (std::size_t j = i + 1; j < calls.size(); ++j) branch.step(calls[j]);
      Desk whole(shop(), 20);
      for (const Call& call : calls) whole.step(call);
      EXPECT_EQ(branch.canonical(), whole.canonical());
    }
    EXPECT_EQ(first.canonical(), second.canonical());
  }
  EXPECT_EQ(Desk(shop(), 20).canonical(), Desk(shop(), 20).canonical());
  Desk brief(shop(), 2);
  EXPECT_FALSE(brief.step({"look", 1}).truncated);
  EXPECT_TRUE(brief.step({"cancel", 1}).truncated);
  EXPECT_TRUE(Desk(shop(), 2).step({"done"}).terminated);
}

// Agreement beyond chance.
double kappa(double both_good, double first_only, double second_only, double both_bad) {
  const double n = both_good + first_only + second_only + both_bad;
  const double first = (both_good + first_only) / n, second = (both_good + second_only) / n;
  const double chance = first * second + (1 - first) * (1 - second);
  return ((both_good + both_bad) / n - chance) / (1 - chance);
}

TEST(People, AgreeLessThanItSeems) {
  EXPECT_NEAR(kappa(85, 5, 5, 5), 0.444, 5e-4);
  EXPECT_NEAR(kappa(81, 9, 9, 1), 0, 1e-12);  // independent
  EXPECT_NEAR(kappa(90, 0, 0, 10), 1, 1e-12);
}

// What four probes keep, and what they leave.
double informative(double p, int group) {
  return 1 - std::pow(p, group) - std::pow(1 - p, group);
}

TEST(Probes, KeepTheMiddleAndLeaveTheUncertain) {
  EXPECT_NEAR(informative(0.01, 8), 0.077, 5e-4);
  EXPECT_NEAR(informative(0.1, 8), 0.57, 5e-3);
  EXPECT_NEAR(informative(0.5, 8), 0.992, 5e-4);
  EXPECT_NEAR(std::pow(0.6, 10), 0.006, 5e-5);
  EXPECT_NEAR(std::pow(0.6, 3), 0.216, 1e-12);
  double kept = 0, never = 0, never_rate = 0, never_teaches = 0;
  const int cells = 200'000;
  for (int i = 0; i < cells; ++i) {
    const double p = (i + 0.5) / cells, none = std::pow(1 - p, 4);
    kept += informative(p, 4) / cells;
    never += none / cells;
    never_rate += none * p / cells;
    never_teaches += none * informative(p, 8) / cells;
  }
  EXPECT_NEAR(kept, 0.6, 1e-6);  // 1 - 2/5
  EXPECT_NEAR(never_rate / never, 1.0 / 6, 1e-6);
  const double beta = std::tgamma(9) * std::tgamma(5) / std::tgamma(14);
  EXPECT_NEAR(never_teaches / never, 1 - 5.0 / 13 - 5 * beta, 1e-6);
  write_value("rl-probes", "never-teaches", 100 * never_teaches / never);
  write_value("rl-probes", "unusable", (18'033 + 1'265) / 59'136.0);

  core::Rng rng(2);  // a filter that keeps what looks hard keeps what was unlucky
  Running seen, real;
  for (int task = 0; task < 200'000; ++task) {
    const double p = rng.uniform64();
    int solved = 0;
    for (int probe = 0; probe < 4; ++probe) solved += rng.uniform64() < p;
    if (solved != 1) continue;
    seen.add(0.25);
    real.add(p);
  }
  EXPECT_NEAR(real.mean(), 1.0 / 3, 0.01);  // (1 + 1) / (4 + 2)
  write_value("rl-probes", "one-of-four", real.mean());
}

// A random split measures familiarity.
TEST(Splits, AtRandomMeasureFamiliarity) {
  core::Rng rng(3);
  for (const int size : {2, 10}) {
    const int groups = 200;
    Running measured;
    for (int trial = 0; trial < 100; ++trial) {
      std::vector<int> in_training(groups, 0);
      std::vector<int> test;
      for (int task = 0; task < groups * size; ++task) {
        if (rng.uniform64() < 0.8)
          ++in_training[static_cast<std::size_t>(task / size)];
        else
          test.push_back(task / size);
      }
      for (const int group : test)  // succeeds with 0.3, and 0.2 more in a known repository
        measured.add(0.3 + (in_training[static_cast<std::size_t>(group)] > 0 ? 0.2 : 0.0));
    }
    const double expected = 0.3 + 0.2 * (1 - std::pow(0.2, size - 1));
    EXPECT_NEAR(measured.mean(), expected, 0.003);
    write_value("rl-splits", "measured-" + std::to_string(size), measured.mean());
  }
}

// Overlap finds copies, dates find the rest.
double overlap(const std::string& test, const std::string& train, std::size_t n) {
  const auto windows = [n](const std::string& text) {
    std::istringstream in(text);
    std::vector<std::string> words(std::istream_iterator<std::string>{in}, {});
    std::vector<std::string> out;
    for (std::size_t i = 0; i + n <= words.size(); ++i) {
      out.emplace_back();
      for (std::size_t j = i; j < i + n; ++j) out.back() += words[j] + " ";
    }
    return out;
  };
  const auto seen = windows(train);
  const std::set<std::string> known(seen.begin(), seen.end());
  const auto asked = windows(test);
  const auto hits = std::count_if(asked.begin(), asked.end(),
                                  [&](const std::string& w) { return known.contains(w); });
  return asked.empty() ? 0 : static_cast<double>(hits) / static_cast<double>(asked.size());
}

TEST(Contamination, OverlapFindsCopiesAndDatesTheRest) {
  const std::string text =
      "the parser drops the last field when a line ends with two separators in a row";
  const std::string renamed =
      "the reader drops the last field when a row ends with two delimiters in a line";
  EXPECT_EQ(overlap(text, "before " + text + " after", 8), 1);
  EXPECT_EQ(overlap(renamed, text, 8), 0);
  EXPECT_GT(overlap(renamed, text, 3), 0.3);

  const Interval seen = wilson(21, 100);
  write_value("rl-contamination", "git-low", 100 * seen.low);
  write_value("rl-contamination", "git-high", 100 * seen.high);
  const double error = std::sqrt(0.6 * 0.4 / 200 + 0.45 * 0.55 / 60);  // before and after a date
  write_value("rl-contamination", "z", 0.15 / error);
  EXPECT_GT(0.15 / error, 1.96);
}

}  // namespace
}  // namespace rose::labs
