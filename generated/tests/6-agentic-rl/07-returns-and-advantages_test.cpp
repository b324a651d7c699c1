// Tests of the chapter "Returns and advantages, in code".

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
#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/rlhf/group_advantages.h"
#include "rose/rlhf/returns.h"
#include "rose/rlhf/token_advantages.h"

namespace rose::rlhf {
namespace {

// Numbers that were computed elsewhere, and identities.
using Row = std::vector<double>;
using Mask = std::vector<std::uint8_t>;

void expect_near(const Row& found, const Row& expected, double tolerance = 5e-7) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], tolerance) << i;
}

TEST(Returns, AgreeWithTheReferenceNumbers) {
  const Row rewards = {0, 0, 0, 0, 0, 1}, values = {.2, .3, .4, .4, .5, .6};
  const Mask actions = {1, 1, 0, 0, 1, 1};
  expect_near(gae_over_actions(rewards, values, actions, {.99, .95}).advantages,
              {0.696308, 0.637223, 0, 0, 0.4702, 0.4});
  expect_near(gae(rewards, values, {.99, .95}).advantages,
              {0.630671, 0.567433, 0.501258, 0.537223, 0.4702, 0.4});
  expect_near(v_trace(Row{0, 0, 1}, Row{.2, .3, .4}, Row{2, .5, 1.2}, {.9, 1}, 1, 1).targets,
              {0.54, 0.60, 1.0});
  EXPECT_NEAR(length_adaptive_lambda(0.05, 100), 0.8, 1e-12);
  EXPECT_NEAR(length_adaptive_lambda(1.5, 1000), 0.9993333, 1e-7);
  EXPECT_EQ(length_adaptive_lambda(0.05, 10), 0);
  EXPECT_NEAR(discounted_returns(Row{1, 0, 4}, 0.5, 8)[0], 1 + 0.25 * 4 + 0.125 * 8, 1e-12);
}

// What must hold for any numbers.
TEST(Returns, KeepTheirIdentities) {
  core::Rng rng(3);
  for (int round = 0; round < 200; ++round) {
    Row rewards(7), values(7), ones(7, 1), potentials(8);
    for (Row* row : {&rewards, &values, &potentials})
      for (double& x : *row) x = double{rng.normal()};
    const double gamma = rng.uniform64(), end = double{rng.normal()};
    const Row returns = discounted_returns(rewards, gamma, end);
    const Estimate all = gae(rewards, values, {gamma, 1}, end);
    for (std::size_t t = 0; t < 7; ++t)
      EXPECT_NEAR(all.advantages[t], returns[t] - values[t], 1e-12);
    expect_near(all.targets, returns, 1e-12);
    // on-policy V-trace is the lambda-return, for any lambda
    const double lambda = rng.uniform64();
    expect_near(v_trace(rewards, values, ones, {gamma, lambda}, 1, 1, end).targets,
                gae(rewards, values, {gamma, lambda}, end).targets, 1e-12);
    // shaping shifts the return by the first potential alone
    const Row shaped = shaped_rewards(rewards, potentials, gamma, true);
    EXPECT_NEAR(discounted_returns(shaped, gamma)[0],
                discounted_returns(rewards, gamma)[0] - potentials[0], 1e-12);
  }
}

// Numbers that were computed elsewhere, and refusals.
TEST(GroupAdvantages, AgreeWithTheReferenceNumbers) {
  const Row r = {0, 1, 1, 2};
  expect_near(rloo(r), {-4.0 / 3, 0, 0, 4.0 / 3}, 1e-12);
  expect_near(group_centred(r), {-1, 0, 0, 1}, 1e-12);
  expect_near(group_standardised(r, Deviation::population), {-1.414214, 0, 0, 1.414214});
  expect_near(group_standardised(r, Deviation::sample), {-1.224745, 0, 0, 1.224745});
  expect_near(opo(r, Row{10, 20, 30, 40}), {-1.3, -0.3, -0.3, 0.7}, 1e-12);
  expect_near(remax(r, Row{1, 1, 0, 0}), {-1, 0, 1, 2}, 1e-12);
  const std::vector<std::int32_t> groups = {7, 3, 7, 3};
  expect_near(per_group({r, groups}, group_centred), {-0.5, -0.5, 0.5, 0.5}, 1e-12);
  expect_near(reinforce_plus_plus_baseline({r, groups}), {-1, -1, 1, 1}, 1e-12);
  RunningBaseline running(0.5);
  expect_near(running.advantages(r), r, 0);
  EXPECT_EQ(running.mean(), 0.5);
}

TEST(GroupAdvantages, AreExactlyZeroInAUniformGroup) {
  for (const double value : {0.1, 1.0 / 3, -7e-9, 0.0}) {
    const Row same(3, value), zeros(3), lengths = {3, 5, 9};
    EXPECT_EQ(rloo(same), zeros);
    EXPECT_EQ(group_centred(same), zeros);
    EXPECT_EQ(group_standardised(same, Deviation::sample, 1e-8), zeros);
    EXPECT_EQ(opo(same, lengths), zeros);
    EXPECT_EQ(reinforce_plus_plus(same), zeros);
  }
}

TEST(GroupAdvantages, RefuseWhatHasNoAnswer) {
  EXPECT_THROW(rloo(Row{1}), core::Error);
  EXPECT_THROW(group_standardised(Row{1, NAN}, Deviation::sample), core::Error);
  EXPECT_THROW(opo(Row{1, 2}, Row{1, 0}), core::Error);
  EXPECT_THROW(opo(Row{1, 2}, Row{1}), core::Error);
  EXPECT_THROW(gae(Row{1, INFINITY}, Row{0, 0}, {1, 1}), core::Error);
  EXPECT_THROW(gae(Row{1}, Row{0}, {1.5, 1}), core::Error);
  EXPECT_THROW(gae_over_actions(Row{1, 1}, Row{0, 0}, Mask{0, 1}, {1, 1}), core::Error);
  const std::vector<std::int32_t> lonely = {1, 1, 2};
  EXPECT_THROW(per_group({Row{1, 2, 3}, lonely}, rloo), core::Error);
}

// Turns of equal state are compared with each other.
Trajectory two_turns(const std::string& id, const std::string& second_state, float reward) {
  Trajectory t;
  t.id = id;
  t.tokens = {1, 2, 3, 4, 5};
  t.trained = {0, 1, 0, 1, 1};
  t.version = {-1, 0, -1, 0, 0};
  t.raw = t.behaviour = {0, -1, 0, -1, -1};
  t.support.resize(5);
  t.turns = {{Kind::observation, 0, 1, "start", {}},
             {Kind::action, 1, 2, "", {}},
             {Kind::observation, 2, 3, second_state, {}},
             {Kind::action, 3, 5, "", {{"verdict", reward}}}};
  validate(t);
  return t;
}

TEST(TokenAdvantages, CompareInsideEqualStates) {
  const std::vector<Trajectory> group = {two_turns("a", "left", 1), two_turns("b", "left", 0),
                                         two_turns("c", "right", 0), two_turns("d", "right", 1)};
  const auto advantages = gigpo(group, {.gamma = 0.5, .omega = 2});
  // episode: +-1/2; at "start" returns 1/2 or 0 around 1/4; then 1 or 0 around 1/2
  expect_near(advantages[0], {0, 0.5 + 2 * 0.25, 0, 0.5 + 2 * 0.5, 0.5 + 2 * 0.5}, 1e-12);
  expect_near(advantages[1], {0, -1, 0, -1.5, -1.5}, 1e-12);
  const std::vector<Trajectory> apart = {two_turns("a", "x", 1), two_turns("b", "y", 0)};
  EXPECT_NEAR(gigpo(apart, {})[0][3], 0.5, 1e-12);  // nobody else was there
  expect_near(broadcast(group[0], 3), {0, 3, 0, 3, 3}, 0);
  expect_near(broadcast_turns(group[0], Row{1, 2}), {0, 1, 0, 2, 2}, 0);
  EXPECT_THROW(broadcast_turns(group[0], Row{1}), core::Error);
}

// The mean and the variance of every estimator's gradient.
struct Moments {
  double mean = 0, square = 0;
  double variance() const { return square - mean * mean; }
};
using Estimator = std::function<Row(const Row& rewards, const Row& lengths)>;

struct Answers {
  Row p = {0.2, 0, -0.4}, rewards = {1, 0, 0.5}, lengths = {1, 4, 2};
  Answers() {
    double z = 0;
    for (double& x : p) z += x = std::exp(x);
    for (double& x : p) x /= z;
  }
  double gradient(const Estimator& estimator, const std::array<std::size_t, 4>& drawn) const {
    Row r, l;
    for (const std::size_t y : drawn) {
      r.push_back(rewards[y]);
      l.push_back(lengths[y]);
    }
    const Row a = estimator(r, l);
    double sum = 0;
    for (std::size_t i = 0; i < 4; ++i) sum += a[i] * ((drawn[i] == 0 ? 1 : 0) - p[0]) / 4;
    return sum;
  }
};

Moments enumerate(const Answers& answers, const Estimator& estimator) {
  Moments m;
  for (std::size_t code = 0; code < 81; ++code) {
    const std::array<std::size_t, 4> drawn = {code % 3, code / 3 % 3, code / 9 % 3, code / 27};
    double chance = 1;
    for (const std::size_t y : drawn) chance *= answers.p[y];
    const double g = answers.gradient(estimator, drawn);
    m.mean += chance * g;
    m.square += chance * g * g;
  }
  return m;
}

// Which are unbiased, and what they cost.
TEST(Estimators, HaveTheBiasAndVarianceThatEnumerationGives) {
  const Answers answers;
  double value = 0;
  for (std::size_t y = 0; y < 3; ++y) value += answers.p[y] * answers.rewards[y];
  const double truth = answers.p[0] * (answers.rewards[0] - value);
  const std::map<std::string, Estimator> estimators = {
      {"none", [](const Row& r, const Row&) { return r; }},
      {"value", [&](const Row& r, const Row&) { return remax(r, Row(4, value)); }},
      {"rloo", [](const Row& r, const Row&) { return rloo(r); }},
      {"centred", [](const Row& r, const Row&) { return group_centred(r); }},
      {"standardised",
       [](const Row& r, const Row&) { return group_standardised(r, Deviation::population); }},
      {"opo", [](const Row& r, const Row& l) { return opo(r, l); }}};
  labs::write_value("rl-bias-table", "truth", truth);
  for (const auto& [name, estimator] : estimators) {
    const Moments exact = enumerate(answers, estimator);
    core::Rng rng(17);
    Moments sampled;
    constexpr int draws = 40'000;
    for (int n = 0; n < draws; ++n) {
      std::array<std::size_t, 4> drawn{};
      for (std::size_t& y : drawn) {
        const double u = rng.uniform64();
        y = u < answers.p[0] ? 0 : u < answers.p[0] + answers.p[1] ? 1 : 2;
      }
      const double g = answers.gradient(estimator, drawn);
      sampled.mean += g / draws;
      sampled.square += g * g / draws;
    }
    const double error = std::sqrt(exact.variance() / draws);
    EXPECT_NEAR(sampled.mean, exact.mean, 4 * error) << name;
    EXPECT_NEAR(sampled.variance() / exact.variance(), 1, 0.06) << name;
    labs::write_value("rl-bias-table", name + "-mean", exact.mean);
    labs::write_value("rl-bias-table", name + "-deviation", std::sqrt(exact.variance()));
    if (name == "none" || name == "value" || name == "rloo") {
      EXPECT_NEAR(exact.mean, truth, 1e-15) << name;
    } else {
      EXPECT_GT(std::fabs(exact.mean - truth), 1e-3) << name;
    }
    if (name == "centred") {
      EXPECT_NEAR(exact.mean, truth * 3 / 4, 1e-15);
    }
  }
}

}  // namespace
}  // namespace rose::rlhf
