// Tests of the chapter "Long-horizon capability: what is in the weights and what stands around them".

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

// The exponent, and three ways to change it.
TEST(Horizon, TheExponentAndThreeWaysToChangeIt) {
  for (const int steps : {10, 50, 100})
    write_value("horizon-errors", "p98-" + std::to_string(steps), 100 * std::pow(0.98, steps));
  const auto half = [](double p) { return std::log(2) / -std::log(p); };
  EXPECT_NEAR(half(0.995) / half(0.99), 2, 0.01);
  const double p = 0.98, d = 0.9;
  const double noticed = p / (1 - (1 - p) * d);
  EXPECT_NEAR((1 - noticed) / ((1 - p) * (1 - d)), 1, 0.02);
  write_value("horizon-errors", "noticed-100", 100 * std::pow(noticed, 100));
  write_value("horizon-errors", "noticed-cost", 1 / (1 - (1 - p) * d));
  const auto run = [](double q, int n) { return (std::pow(q, -n) - 1) / (1 - q); };
  double recursion = 0;
  for (int n = 0; n < 100; ++n) recursion = (recursion + 1) / p;
  EXPECT_NEAR(run(p, 100) / recursion, 1, 1e-12);
  write_value("horizon-errors", "restart", run(p, 100));
  int best = 1;
  const double save = 2;
  for (int m = 1; m <= 100; ++m)
    if ((run(p, m) + save) / m < (run(p, best) + save) / best) best = m;
  write_value("horizon-errors", "save-every", best);
  write_value("horizon-errors", "saved", 100 * (run(p, best) + save) / best);
  EXPECT_NEAR(best, std::sqrt(2 * save / (1 - p)), 2);
  EXPECT_NEAR(1.386 / 0.6, 2.31, 0.005);
  EXPECT_NEAR(std::exp2(-std::log(4) / 0.6), 0.2, 0.005);
  EXPECT_NEAR(-std::log2(0.8), 0.32, 0.005);
}

TEST(Horizon, ErrorsInViewCauseErrors) {
  const double e = 0.02, k = 3, d = 0.9;
  for (const bool drops : {true, false}) {
    double clean = 1, dirty = 0;  // still alive, without and with an error in view
    for (int step = 0; step < 100; ++step) {
      const double more = drops ? e : k * e;  // while retrying within the step, too
      const double first = clean * (1 - e), slip = clean * e * d;
      const double rescued = slip * (1 - more) / (1 - more * d);
      const double stays = dirty * (1 - k * e) / (1 - k * e * d);
      clean = drops ? first + rescued : first;
      dirty = drops ? 0 : stays + rescued;
    }
    write_value("horizon-errors", drops ? "dropped" : "kept", 100 * (clean + dirty));
  }
}

// What a deterministic policy is worth, from some step on.

/// Sum over the trajectories that agree with the choices from a situation's step on; with no
/// situation, from the first.
double worth(const Tree& tree, const std::vector<std::size_t>& choice, std::size_t from) {
  double sum = 0;
  for (const Trajectory& path : tree.trajectories) {
    bool counts = from == tree.situations.size(), agrees = true;
    for (const Decision& d : path.steps) {
      counts = counts || d.situation == from;
      agrees = agrees && (!counts || choice[d.situation] == d.action);
    }
    if (counts && agrees) sum += path.environment * returns(path, 1)[0];
  }
  return sum;
}

// Find the best deterministic policy for what a harness shows.
double best_policy(const Tree& tree) {
  const std::size_t all = tree.situations.size();
  std::vector<std::pair<std::size_t, std::size_t>> latest_first;  // (step, situation)
  std::map<std::size_t, std::size_t> step_of;
  for (const Trajectory& path : tree.trajectories)
    for (std::size_t t = 0; t < path.steps.size(); ++t) step_of[path.steps[t].situation] = t;
  for (const auto& [situation, t] : step_of) latest_first.emplace_back(t, situation);
  std::ranges::sort(latest_first, std::greater{});
  std::vector<std::size_t> choice(all);
  const auto improve = [&](std::size_t situation, std::size_t from) {
    std::size_t better = choice[situation];
    double most = worth(tree, choice, from);
    for (std::size_t a = 0; a < tree.actions; ++a) {
      choice[situation] = a;
      if (const double x = worth(tree, choice, from); x > most + 1e-12) most = x, better = a;
    }
    choice[situation] = better;
    return most;
  };
  for (const auto& [t, situation] : latest_first) improve(situation, situation);
  core::Rng rng(1);
  double best = -1;
  for (int start = 0; start < 30; ++start) {
    for (double now = -1, before = -2; now > before;) {
      before = now;
      for (const auto& [t, situation] : latest_first) now = improve(situation, all);
    }
    best = std::max(best, worth(tree, choice, all));
    for (std::size_t& c : choice) c = rng.below(static_cast<std::uint32_t>(tree.actions));
  }
  return best;
}

// The broken service, with or without a bit that the agent writes.
Process service(bool memory) {
  const Process plain = broken_service(5, 0.01);
  if (!memory) return plain;
  return {plain.start, 6, 5, [step = plain.step](std::size_t state, std::size_t action) {
            return step(state, action % 3);  // action / 3 is the bit
          }};
}

// What each harness is worth, with the best policy for it.
TEST(Forgetting, CostsWhatItHides) {
  const auto counted = [](const History& h) {  // the difference of the counts, and the time
    std::size_t balance = 10;
    for (std::size_t i = 1; i < h.size(); i += 2) balance += h[i] == 0 ? 1 : -1;
    return History{balance, h.size()};
  };
  const auto last = [](const History& h) {
    return h.empty() ? History{} : History{h.back(), h.size()};
  };
  const auto time_only = [](const History& h) { return History{h.size()}; };
  const auto bit = [](const History& h) {  // the last result and the bit that was written before it
    return h.empty() ? History{} : History{h.back(), h[h.size() - 2] / 3, h.size()};
  };
  const double full = best_policy(enumerate(service(false)));
  const double enough = best_policy(enumerate(service(false), counted));
  const double recent = best_policy(enumerate(service(false), last));
  const double blind = best_policy(enumerate(service(false), time_only));
  const double written = best_policy(enumerate(service(true), bit));
  for (const auto& [name, value] : std::map<std::string, double>{{"full", full},
                                                                 {"enough", enough},
                                                                 {"recent", recent},
                                                                 {"blind", blind},
                                                                 {"written", written}})
    write_value("horizon-memory", name, value);
  EXPECT_NEAR(full, enough, 1e-12);
  EXPECT_LT(recent, written);
  EXPECT_LT(blind, recent);
}

// Side by side: the longest part decides.
TEST(Agents, TheLongestPartDecides) {
  double harmonic = 0;
  for (int i = 1; i <= 10; ++i) harmonic += 1.0 / i;
  EXPECT_NEAR(harmonic, 2.93, 0.005);
  EXPECT_NEAR(10 / harmonic, 3.4, 0.05);
  core::Rng rng(1);
  double sum = 0;
  const int trials = 20'000;
  for (int trial = 0; trial < trials; ++trial) {
    double longest = 0;
    for (int i = 0; i < 10; ++i) longest = std::max(longest, -std::log(1 - double{rng.uniform()}));
    sum += longest / trials;
  }
  EXPECT_NEAR(sum, harmonic, 0.03);
  const double both_old = 0.30, weights = 0.34, harness = 0.33, both_new = 0.55;
  EXPECT_NEAR(both_new - weights - harness + both_old, 0.18, 1e-12);
  EXPECT_NEAR(((weights - both_old) + (both_new - harness)) / 2, 0.13, 1e-12);
}

// Advantages across a cut, bonuses that anneal, and the critical path.
TEST(Objectives, SegmentsHelpersAndTheCriticalPath) {
  const double lambda = 0.9;
  const auto exact = [&](double third) {
    return gae(std::array{0.0, 0.0, 0.0, 1.0}, std::array{0.5, 0.6, third, 0.8, 0.0}, 1, lambda);
  };
  auto approximate = gae(std::array{0.0, 1.0}, std::array{0.5, 0.6, 0.0}, 1, lambda);
  for (double& a : approximate) a *= lambda * lambda;
  EXPECT_NEAR(exact(0.7)[0], 0.4168, 1e-12);
  EXPECT_NEAR(exact(0.7)[1], 0.352, 1e-12);
  EXPECT_NEAR(exact(0.1)[1], 0.292, 1e-12);
  EXPECT_NEAR(approximate[0], 0.3726, 1e-12);
  EXPECT_NEAR(approximate[1], 0.324, 1e-12);
  const auto whole = gae(std::array{0.0, 0.0, 0.0, 1.0}, std::array{0.5, 0.6, 0.7, 0.8, 0.0}, 1, 1);
  EXPECT_NEAR(whole[0], gae(std::array{0.0, 1.0}, std::array{0.5, 0.6, 0.0}, 1, 1)[0], 1e-15);

  const std::array outcome = {0.5, 0.4, 0.5}, helpers = {0.0, 1.0, 1.0}, finished = {0.0, 1.0, 0.0};
  const auto best = [&](double first, double second) {
    std::size_t b = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      const auto reward = [&](std::size_t k) {
        return outcome[k] + first * helpers[k] + second * finished[k];
      };
      if (reward(i) > reward(b)) b = i;
    }
    return b;
  };
  EXPECT_EQ(best(0, 0), 0u);                              // alone
  EXPECT_EQ(best(0.2, 0), 2u);                            // idle helpers
  EXPECT_EQ(best(0.2, 0.2), 1u);                          // helpers that work
  EXPECT_NEAR(outcome[1] + 0.2 + 0.2 - 0.2, 0.6, 1e-12);  // what idle ones would have to reach

  const auto critical = [](int own, std::span<const int> steps) {
    return own + *std::max_element(steps.begin(), steps.end());
  };
  write_value("horizon-objectives", "alone", critical(0, std::array{30}));
  write_value("horizon-objectives", "even", critical(2, std::array{10, 10, 10}));
  write_value("horizon-objectives", "uneven", critical(2, std::array{20, 5, 5}));
}

}  // namespace
}  // namespace rose::labs
