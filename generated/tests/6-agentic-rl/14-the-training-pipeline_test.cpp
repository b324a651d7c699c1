// Tests of the chapter "The training pipeline end to end".

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
#include "labs/rl/pipeline.h"

namespace rose::labs {
namespace {

// A cold start is what makes groups differ.
Process lock(std::size_t digits) {  // the state counts right digits; 99: one was wrong
  return {{1.0}, 4, digits, [digits](std::size_t state, std::size_t action) {
            const std::size_t next = state != 99 && action == state % 4 ? state + 1 : 99;
            return std::vector<Event>{{1, next, 0, next == digits ? 1.0 : 0.0}};
          }};
}

TEST(Pipeline, AColdStartMakesGroupsDiffer) {
  const Process process = lock(6);
  const Tree tree = enumerate(process);
  const Sampler sampler(process, tree);
  const Policy blank(tree);
  EXPECT_NEAR(objective(tree, blank), 1.0 / 4096, 1e-12);
  Policy shown(tree);
  const auto demonstration = std::ranges::find_if(
      tree.trajectories, [](const Trajectory& path) { return path.steps.back().reward > 0; });
  for (int step = 0; step < 15; ++step) {
    std::vector<double> score(shown.logits().size());
    for (const Decision& d : demonstration->steps) shown.add_score(d, 0.15, score);
    for (std::size_t i = 0; i < score.size(); ++i) shown.logits()[i] += score[i];
  }
  for (const bool cold_start : {false, true}) {
    const Policy& start = cold_start ? shown : blank;
    const std::string name = cold_start ? "shown-" : "blank-";
    write_value("rl-cold-start", name + "before", 100 * objective(tree, start));
    Training run{{start.logits().begin(), start.logits().end()}, 0, 0, {}};
    run = advance(run, sampler, blank, {.rate = 4}, 40);
    Policy end(tree);
    std::ranges::copy(run.logits, end.logits().begin());
    write_value("rl-cold-start", name + "after", 100 * objective(tree, end));
    write_value("rl-cold-start", name + "uniform",
                100.0 * static_cast<double>(run.census.of(Fate::uniform)) /
                    static_cast<double>(run.census.attempts()));
    EXPECT_EQ(run.census.attempts(), 40 * 4 * 8);
  }
}

// A set of prompts wears out.
TEST(Prompts, ASetWearsOut) {
  const auto solves = [](double skill, double difficulty) {
    return 1 / (1 + std::exp(difficulty - skill));
  };
  const auto mixed = [](double p) { return 1 - std::pow(p, 16) - std::pow(1 - p, 16); };
  EXPECT_NEAR(100 * mixed(0.001), 1.6, 0.05);
  EXPECT_NEAR(100 * mixed(0.2), 97, 0.5);
  EXPECT_NEAR(100 * (1 - std::pow(0.98, 10)), 18, 0.5);
  EXPECT_NEAR(1 - mixed(0.02), 0.72, 0.005);
  for (const double skill : {0.0, 1.0, 2.0, 3.0}) {
    double fixed = 0, fresh = 0;
    int of_fixed = 0, of_fresh = 0;
    for (int i = 0; i <= 800; ++i) {
      const double difficulty = -4 + 0.01 * i, now = solves(skill, difficulty);
      const double first = solves(0, difficulty);
      if (0.2 <= first && first <= 0.8) fixed += now * (1 - now), ++of_fixed;
      if (0.2 <= now && now <= 0.8) fresh += now * (1 - now), ++of_fresh;
    }
    const std::string at = std::to_string(static_cast<int>(skill));
    write_value("rl-prompts", "fixed-" + at, fixed / of_fixed);
    write_value("rl-prompts", "fresh-" + at, fresh / of_fresh);
  }
}

// An interrupted run is the run that was not.
TEST(Pipeline, ResumesToTheBitAndLosesNothing) {
  const Process process = broken_service(3);
  const Tree tree = enumerate(process);
  const Sampler sampler(process, tree);
  const Policy policy(tree);
  const Settings settings{.groups = 3, .group = 4, .rate = 1, .crash = 0.3, .seed = 5};
  const Training start{std::vector<double>(policy.logits().size()), 0, 0, {}};
  const Training whole = advance(start, sampler, policy, settings, 80);
  Training halves = advance(start, sampler, policy, settings, 33);
  halves = advance(halves, sampler, policy, settings, 47);
  EXPECT_EQ(whole.logits, halves.logits);
  EXPECT_EQ(whole.position, halves.position);
  EXPECT_EQ(whole.census.counts, halves.census.counts);
  EXPECT_EQ(whole.census.attempts(), 80 * 3 * 4);
  EXPECT_GT(whole.census.of(Fate::crashed), 0);
  EXPECT_GT(whole.census.of(Fate::alone), 0);
  Policy end(tree);
  std::ranges::copy(whole.logits, end.logits().begin());
  write_value("rl-resume", "before", objective(tree, policy));
  write_value("rl-resume", "after", objective(tree, end));
  EXPECT_GT(objective(tree, end), objective(tree, policy) + 0.2);
}

// Left out or counted as failure: two orders of the same actions.
TEST(Crashes, OrderActionsByCustom) {
  const double a = 0.6, crash = 0.3, b = 0.55;
  EXPECT_GT(a, b);
  EXPECT_LT(a * (1 - crash), b);
  EXPECT_NEAR(a * (1 - crash), 0.42, 1e-12);
  write_value("rl-crash", "equal", 100 * (1 - b / a));
}

// The price of a device-hour, if the weeks were full.
TEST(Bill, DividesOut) {
  const double hours = 512 * 3 * 7 * 24;
  EXPECT_EQ(hours, 258'048);
  EXPECT_NEAR(534'700 / hours, 2.07, 0.005);
  write_value("rl-bill", "hours", hours);
  write_value("rl-bill", "price", 534'700 / hours);
}

}  // namespace
}  // namespace rose::labs
