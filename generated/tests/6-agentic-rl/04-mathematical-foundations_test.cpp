// Tests of the chapter "Mathematical foundations: decisions in time".

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
#include "labs/rl/examples.h"
#include "labs/rl/process.h"

namespace rose::labs {
namespace {

// The trajectory law is a probability, and the hand agrees with the list.
TEST(Trajectories, HaveProbabilitiesThatSumToOne) {
  core::Rng rng(1);
  for (const std::size_t horizon : {1u, 2u, 3u, 4u}) {
    const Tree tree = enumerate(broken_service(horizon));
    Policy policy(tree);
    policy.randomise(rng, 1.5);
    const auto one = [](const Trajectory&) { return std::vector{1.0}; };
    EXPECT_NEAR(moments(tree, policy, one).mean[0], 1, 1e-14);
    EXPECT_NEAR(moments(tree, policy, one).variance, 0, 1e-14);
  }
}

TEST(Trajectories, GiveTheCoinFlipperItsDue) {
  double expected = 0;
  for (const std::size_t horizon : {1u, 2u, 3u}) {
    expected = (-0.05 + expected) / 3 + 0.7 / 3 + 0.3 / 3;
    const Tree tree = enumerate(broken_service(horizon));
    EXPECT_NEAR(objective(tree, Policy(tree)), expected, 1e-14);
    write_value("rl-law", "coin-" + std::to_string(horizon), expected);
  }
  const Tree tree = enumerate(broken_service(3));
  EXPECT_EQ(tree.situations.size(), 7u);  // 1 + 2 + 4 histories
  write_value("rl-law", "trajectories", static_cast<double>(tree.trajectories.size()));
}

// The best policy over beliefs equals the best of all policies over histories.
double best_over_beliefs(const Process& process, std::vector<double> belief, std::size_t left) {
  if (left == 0) return 0;
  double best = -1e9;
  for (std::size_t a = 0; a < process.actions; ++a) {
    double value = 0;
    std::map<std::size_t, std::vector<double>> joint;  // by observation: unnormalised beliefs
    for (std::size_t s = 0; s < belief.size(); ++s) {
      for (const Event& e : process.step(s, a)) {
        value += belief[s] * e.probability * e.reward;
        if (e.last) continue;
        auto& next = joint[e.observation];
        next.resize(belief.size());
        next[e.next] += belief[s] * e.probability;
      }
    }
    for (auto& [observation, next] : joint) {
      const double p = std::accumulate(next.begin(), next.end(), 0.0);
      for (double& b : next) b /= p;
      value += p * best_over_beliefs(process, next, left - 1);
    }
    best = std::max(best, value);
  }
  return best;
}

TEST(Belief, IsAllThatAnOptimalPolicyNeeds) {
  const Process process = broken_service(3);
  const Tree tree = enumerate(process);
  double best = 0;
  for (int code = 0; code < 2187; ++code) {  // base three: the action in each of seven histories
    std::array<std::size_t, 7> action{};
    for (int rest = code; std::size_t & a : action)
      a = static_cast<std::size_t>(rest % 3), rest /= 3;
    double value = 0;
    for (const Trajectory& path : tree.trajectories) {
      const bool taken = std::all_of(path.steps.begin(), path.steps.end(), [&](const Decision& d) {
        return action[d.situation] == d.action;
      });
      if (taken) value += path.environment * returns(path, 1)[0];
    }
    best = std::max(best, value);
  }
  EXPECT_NEAR(best_over_beliefs(process, process.start, 3), best, 1e-14);
  EXPECT_NEAR(best, 0.795, 1e-12);
  EXPECT_NEAR(best_over_beliefs(process, process.start, 2), 0.75, 1e-12);
  EXPECT_NEAR(best_over_beliefs(process, process.start, 1), 0.7, 1e-12);
  write_value("rl-belief", "best", best);
  write_value("rl-belief", "config-after-config", 0.24 / 0.38);
}

// Forgetting costs reward.
double best_deterministic(const Tree& tree) {
  const std::size_t n = tree.situations.size();
  const auto codes = static_cast<std::size_t>(std::pow(tree.actions, n) + 0.5);
  double best = -1e9;
  for (std::size_t code = 0; code < codes; ++code) {
    std::vector<std::size_t> action(n);
    std::size_t rest = code;
    for (std::size_t& a : action) a = rest % tree.actions, rest /= tree.actions;
    double value = 0;
    for (const Trajectory& path : tree.trajectories) {
      bool taken = true;
      for (const Decision& d : path.steps) taken = taken && action[d.situation] == d.action;
      if (taken) value += path.environment * returns(path, 1)[0];
    }
    best = std::max(best, value);
  }
  return best;
}

TEST(Memory, ForgettingCostsReward) {
  const auto last = [](const History& h) { return h.empty() ? h : History{h.back()}; };
  const double all = best_deterministic(enumerate(broken_service(3)));
  const double one = best_deterministic(enumerate(broken_service(3), last));
  const double none =
      best_deterministic(enumerate(broken_service(3), [](const History&) { return History{}; }));
  EXPECT_LT(one, all);
  EXPECT_LT(none, one);
  write_value("rl-memory", "all", all);
  write_value("rl-memory", "last", one);
  write_value("rl-memory", "none", none);
}

// Values obey Bellman's equations.
TEST(Values, ObeyBellmansEquations) {
  const double gamma = 0.9;
  const Tree tree = enumerate(broken_service(3));
  core::Rng rng(2);
  Policy policy(tree);
  policy.randomise(rng, 1);
  const Values x = values(tree, policy, gamma);
  std::vector<double> mass(x.q.size()), backed_up(x.q.size());
  for (const Trajectory& path : tree.trajectories) {
    const double p = policy.probability(path);
    for (std::size_t t = 0; t < path.steps.size(); ++t) {
      const Decision& d = path.steps[t];
      const double next = t + 1 < path.steps.size() ? x.v[path.steps[t + 1].situation] : 0;
      mass[d.situation * 3 + d.action] += p;
      backed_up[d.situation * 3 + d.action] += p * (d.reward + gamma * next);
    }
  }
  for (std::size_t cell = 0; cell < x.q.size(); ++cell)
    EXPECT_NEAR(backed_up[cell] / mass[cell], x.q[cell], 1e-13);
  EXPECT_NEAR(x.v[0], objective(tree, policy, gamma), 1e-13);
  const Values coin = values(tree, Policy(tree), 1);
  write_value("rl-values", "v", coin.v[0]);
  write_value("rl-values", "q-test", coin.q[0]);
  write_value("rl-values", "a-test", coin.q[0] - coin.v[0]);
  write_value("rl-values", "a-code", coin.q[1] - coin.v[0]);
  write_value("rl-values", "a-config", coin.q[2] - coin.v[0]);
}

// Five forms of the policy gradient have one mean, and it is the derivative.
TEST(PolicyGradient, FiveFormsHaveOneMeanAndDifferentVariances) {
  const Tree tree = enumerate(broken_service(3));
  for (const double gamma : {1.0, 0.9}) {
    core::Rng rng(3);
    Policy policy(tree);
    if (gamma < 1) policy.randomise(rng, 1);  // the numbers of the text are the coin-flipper's
    const Values x = values(tree, policy, gamma);
    const auto truth =
        differentiate(policy, [&](const Policy& p) { return objective(tree, p, gamma); });
    const std::vector<std::string> names = {"whole", "to-go", "q", "to-go-v", "advantage"};
    const auto estimate = [&](std::size_t form, double bonus) {  // bonus: for the last step
      return moments(tree, policy, [&](const Trajectory& path) {
        std::vector<double> g(policy.logits().size());
        const auto to_go = returns(path, gamma);
        for (std::size_t t = 0; t < to_go.size(); ++t) {
          const Decision& d = path.steps[t];
          const double q = x.q[d.situation * 3 + d.action] + bonus, v = x.v[d.situation] + bonus;
          const double discount = std::pow(gamma, t), rest = to_go[t] + bonus;
          const std::array credit = {to_go[0] + bonus, discount * rest, discount * q,
                                     discount * (rest - v), discount * (q - v)};
          policy.add_score(d, credit[form], g);
        }
        return g;
      });
    };
    for (std::size_t form = 0; form < names.size(); ++form) {
      const Moments m = estimate(form, 0);
      for (std::size_t i = 0; i < truth.size(); ++i) ASSERT_NEAR(m.mean[i], truth[i], 1e-9);
      if (gamma < 1) continue;
      write_value("rl-policy-gradient", names[form], m.variance);
      const Moments shifted = estimate(form, 0.5);
      for (std::size_t i = 0; i < truth.size(); ++i) ASSERT_NEAR(shifted.mean[i], truth[i], 1e-9);
      EXPECT_EQ(std::fabs(shifted.variance - m.variance) < 1e-9, form >= 3) << names[form];
    }
  }
}

// Tokens and turns have one gradient; the parser's spellings only add noise.
TEST(Language, TokensAndActionsHaveOneGradient) {
  // State 0: nothing written; 1, 2: one token written. Rewards: read 0.5, write 1, unparsed 0.
  const Process spelling{{1.0, 0.0, 0.0}, 2, 2, [](std::size_t state, std::size_t token) {
                           if (state == 0) return std::vector<Event>{{1, 1 + token, token, 0}};
                           const double r = state == 1 ? 0.5 : token == 0 ? 1.0 : 0.0;
                           return std::vector<Event>{{1, 0, token, r, true}};
                         }};
  const Tree tree = enumerate(spelling);
  core::Rng rng(4);
  Policy policy(tree);
  policy.randomise(rng, 1);
  const auto parse = [](const Trajectory& path) -> std::size_t {
    return path.steps[0].action == 0 ? 0 : 1 + path.steps[1].action;
  };
  std::array<double, 3> total{};  // the probability of each action, and its gradient
  std::array<std::vector<double>, 3> gradient;
  gradient.fill(std::vector<double>(policy.logits().size()));
  for (const Trajectory& path : tree.trajectories) {
    total[parse(path)] += policy.probability(path);
    for (const Decision& d : path.steps)
      policy.add_score(d, policy.probability(path), gradient[parse(path)]);
  }
  const Moments tokens = moments(tree, policy, [&](const Trajectory& path) {
    std::vector<double> g(policy.logits().size());
    for (const Decision& d : path.steps) policy.add_score(d, returns(path, 1)[0], g);
    return g;
  });
  const Moments actions = moments(tree, policy, [&](const Trajectory& path) {
    std::vector<double> g = gradient[parse(path)];
    for (double& x : g) x *= returns(path, 1)[0] / total[parse(path)];
    return g;
  });
  for (std::size_t i = 0; i < tokens.mean.size(); ++i)
    EXPECT_NEAR(tokens.mean[i], actions.mean[i], 1e-14);
  EXPECT_GT(tokens.variance, actions.variance);
  write_value("rl-token-turn", "tokens", tokens.variance);
  write_value("rl-token-turn", "actions", actions.variance);
  write_value("rl-token-turn", "turns-kept", std::pow(0.99, 10));
  write_value("rl-token-turn", "forgotten", std::pow(0.99, 3000));
}

// Products of ratios are right and loud, single ratios quiet and biased.
TEST(Importance, ProductsAreRightAndSingleRatiosQuiet) {
  const Tree tree = enumerate(broken_service(4));
  core::Rng rng(5);
  Policy mu(tree), direction(tree);
  mu.randomise(rng, 0.5);
  direction.randomise(rng, 1);
  for (const double epsilon : {0.0, 0.1, 0.3, 1.0}) {
    Policy pi = mu;
    for (std::size_t i = 0; i < pi.logits().size(); ++i)
      pi.logits()[i] += epsilon * direction.logits()[i];
    const auto truth = differentiate(pi, [&](const Policy& p) { return objective(tree, p); });
    double size = 0;
    for (const double x : truth) size += x * x;
    const auto measure = [&](const std::string& name, auto weight) {
      const Moments m = moments(tree, mu, [&](const Trajectory& path) {
        std::vector<double> g(pi.logits().size());
        const auto to_go = returns(path, 1);
        for (std::size_t t = 0; t < to_go.size(); ++t)
          pi.add_score(path.steps[t], weight(path, t) * to_go[t], g);
        return g;
      });
      double bias = 0;
      for (std::size_t i = 0; i < truth.size(); ++i)
        bias += (m.mean[i] - truth[i]) * (m.mean[i] - truth[i]);
      const std::string tag = name + "-" + std::to_string(static_cast<int>(10 * epsilon));
      write_value("rl-importance", tag + "-bias", 100 * std::sqrt(bias / size));
      write_value("rl-importance", tag + "-variance", m.variance);
      return std::sqrt(bias / size);
    };
    const auto ratio = [&](const Decision& d) {
      return pi.probability(d.situation, d.action) / mu.probability(d.situation, d.action);
    };
    const double product = measure("product", [&](const Trajectory& path, std::size_t) {
      return std::exp(pi.log_probability(path) - mu.log_probability(path));
    });
    const double single = measure(
        "single", [&](const Trajectory& path, std::size_t t) { return ratio(path.steps[t]); });
    const double none = measure("none", [](const Trajectory&, std::size_t) { return 1.0; });
    EXPECT_LT(product, 1e-8);
    if (epsilon == 0) {
      EXPECT_LT(single, 1e-8);
      EXPECT_LT(none, 1e-8);
    } else {
      EXPECT_GT(single, 1e-3);
    }
  }
}

// The second moment obeys its recursion and its bound, and the geometric mean is no ratio.
TEST(Importance, SecondMomentObeysRecursionAndBound) {
  const Tree tree = enumerate(broken_service(4));
  core::Rng rng(6);
  double lowest = 1, highest = 1;
  for (int trial = 0; trial < 20; ++trial) {
    Policy mu(tree), pi(tree);
    mu.randomise(rng, 0.7);
    pi.randomise(rng, 0.7);
    const auto log_w = [&](const Trajectory& path) {
      return pi.log_probability(path) - mu.log_probability(path);
    };
    const Moments under_mu = moments(tree, mu, [&](const Trajectory& path) {
      const double w = std::exp(log_w(path));
      return std::vector{w, w * w, std::pow(w, 0.25), std::pow(w, 1.0 / double(path.steps.size()))};
    });
    const Moments under_pi = moments(tree, pi, [&](const Trajectory& path) {
      return std::vector{std::exp(log_w(path)), log_w(path)};
    });
    ASSERT_NEAR(under_mu.mean[0], 1, 1e-13);
    ASSERT_NEAR(under_mu.mean[1], under_pi.mean[0], 1e-12);
    ASSERT_GE(under_mu.mean[1], std::exp(under_pi.mean[1]));  // e^KL
    ASSERT_LT(under_mu.mean[2], 1);                           // one power for all lengths
    lowest = std::min(lowest, under_mu.mean[3]);  // the geometric mean: a power by length
    highest = std::max(highest, under_mu.mean[3]);
    double worst = 0;  // the largest chi-squared of a single decision
    for (std::size_t s = 0; s < tree.situations.size(); ++s) {
      double m = 0;
      for (std::size_t a = 0; a < 3; ++a)
        m += pi.probability(s, a) * pi.probability(s, a) / mu.probability(s, a);
      worst = std::max(worst, m - 1);
    }
    ASSERT_LE(under_mu.mean[1], std::pow(1 + worst, 4));
  }
  EXPECT_LT(lowest, 1);
  EXPECT_GT(highest, 1);
  write_value("rl-second-moment", "lowest", lowest);
  write_value("rl-second-moment", "highest", highest);
}

}  // namespace
}  // namespace rose::labs
