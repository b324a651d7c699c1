// Tests of the chapter "Derivations step by step: from the theorem to an estimator".

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

// The coin's variance is the formula, and its best baseline is not its value.
TEST(Coin, HasTheDerivedVariance) {
  for (const double p : {0.1, 0.5, 0.9}) {
    for (const double b : {0.0, 0.3, p, 1 - p}) {
      const double success = (1 - b) * (1 - p), failure = b * p;
      const double mean = p * success + (1 - p) * failure;
      const double variance = p * success * success + (1 - p) * failure * failure - mean * mean;
      EXPECT_NEAR(mean, p * (1 - p), 1e-15);
      EXPECT_NEAR(variance, p * (1 - p) * (b - (1 - p)) * (b - (1 - p)), 1e-15);
    }
  }
  EXPECT_NEAR(0.1 * std::pow(0.9, 3), 0.0729, 1e-12);
  EXPECT_NEAR(0.1 * 0.9 * 0.8 * 0.8, 0.0576, 1e-12);
}

// Any baseline keeps the mean, the best one is a weighted average.
Estimator with_baseline(const Policy& policy, double b) {
  return [&policy, b](const Trajectory& path) {
    std::vector<double> g(policy.logits().size());
    for (const Decision& d : path.steps) policy.add_score(d, returns(path, 1)[0] - b, g);
    return g;
  };
}

TEST(Baselines, KeepTheMeanAndTheBestIsAWeightedAverage) {
  const Tree tree = enumerate(broken_service(3));
  core::Rng rng(1);
  Policy policy(tree);
  policy.randomise(rng, 0.5);
  const double value = objective(tree, policy);
  const Moments weights = moments(tree, policy, [&](const Trajectory& path) {
    double squared = 0;
    std::vector<double> s(policy.logits().size());
    for (const Decision& d : path.steps) policy.add_score(d, 1, s);
    for (const double x : s) squared += x * x;
    return std::vector{squared, returns(path, 1)[0] * squared};
  });
  const double best = weights.mean[1] / weights.mean[0];
  const Moments none = moments(tree, policy, with_baseline(policy, 0));
  const Moments at_value = moments(tree, policy, with_baseline(policy, value));
  const Moments at_best = moments(tree, policy, with_baseline(policy, best));
  for (std::size_t i = 0; i < none.mean.size(); ++i) {
    ASSERT_NEAR(none.mean[i], at_value.mean[i], 1e-14);
    ASSERT_NEAR(none.mean[i], at_best.mean[i], 1e-14);
  }
  EXPECT_NEAR(at_value.variance - at_best.variance,
              (value - best) * (value - best) * weights.mean[0], 1e-13);
  EXPECT_LT(at_best.variance, at_value.variance);
  for (const auto& [name, x] : std::map<std::string, double>{{"value", value},
                                                             {"best", best},
                                                             {"variance-none", none.variance},
                                                             {"variance-value", at_value.variance},
                                                             {"variance-best", at_best.variance}})
    write_value("rl-baselines", name, x);
}

// Sum over all groups of a size.

/// Mean and total variance of the average of advantage times score over all groups of a size.
Moments of_groups(const Tree& tree, const Policy& policy, std::size_t size,
                  const std::function<std::vector<double>(std::span<const double>)>& advantages) {
  Moments m;
  m.mean.resize(policy.logits().size());
  std::vector<const Trajectory*> group(size);
  std::vector<double> rewards(size);
  const auto fill = [&](auto&& self, std::size_t at, double p) -> void {
    if (at < size) {
      for (const Trajectory& path : tree.trajectories) {
        group[at] = &path;
        rewards[at] = returns(path, 1)[0];
        self(self, at + 1, p * policy.probability(path));
      }
      return;
    }
    std::vector<double> g(m.mean.size());
    const auto a = advantages(rewards);
    for (std::size_t i = 0; i < size; ++i) {
      for (const Decision& d : group[i]->steps)
        policy.add_score(d, a[i] / static_cast<double>(size), g);
    }
    for (std::size_t k = 0; k < g.size(); ++k) m.mean[k] += p * g[k], m.variance += p * g[k] * g[k];
  };
  fill(fill, 0, 1);
  for (const double x : m.mean) m.variance -= x * x;
  return m;
}

// Group means shrink the gradient, leaving oneself out does not.
TEST(Groups, LeavingOneselfOutIsUnbiased) {
  const Tree tree = enumerate(broken_service(2));
  core::Rng rng(2);
  Policy policy(tree);
  policy.randomise(rng, 0.5);
  const auto truth = differentiate(policy, [&](const Policy& p) { return objective(tree, p); });
  const double value = objective(tree, policy);
  for (const std::size_t size : {2u, 3u}) {
    const double factor = static_cast<double>(size - 1) / static_cast<double>(size);
    const auto centred = [&](std::span<const double> r) {
      auto a = leave_one_out(r);
      for (double& x : a) x *= factor;
      return a;
    };
    const auto fixed = [&](std::span<const double> r) {
      std::vector<double> a;
      for (const double x : r) a.push_back(x - value);
      return a;
    };
    const Moments mean = of_groups(tree, policy, size, centred);
    const Moments out = of_groups(tree, policy, size, leave_one_out);
    const Moments known = of_groups(tree, policy, size, fixed);
    for (std::size_t i = 0; i < truth.size(); ++i) {
      ASSERT_NEAR(out.mean[i], truth[i], 1e-9);
      ASSERT_NEAR(mean.mean[i], factor * truth[i], 1e-9);
    }
    const std::string g = std::to_string(size);
    write_value("rl-groups", "out-" + g, out.variance * static_cast<double>(size));
    write_value("rl-groups", "known-" + g, known.variance * static_cast<double>(size));
  }
}

// A group is an average over its pairs.
TEST(Groups, AreAveragesOverPairs) {
  EXPECT_THROW(leave_one_out(std::array{1.0}), std::invalid_argument);
  core::Rng rng(3);
  std::array<double, 5> r{}, s{};
  for (double& x : r) x = rng.normal();
  for (double& x : s) x = rng.normal();
  const auto a = leave_one_out(r);
  double left = 0, right = 0;
  for (std::size_t i = 0; i < 5; ++i) {
    left += a[i] * s[i] / 5;
    for (std::size_t j = i + 1; j < 5; ++j) right += 0.5 * (r[i] - r[j]) * (s[i] - s[j]) / 10;
  }
  EXPECT_NEAR(left, right, 1e-14);
  const auto by_hand = leave_one_out(std::array{0.0, 1.0, 1.0, 2.0});
  EXPECT_NEAR(by_hand[0], -4.0 / 3, 1e-15);
  EXPECT_NEAR(by_hand[1], 0, 1e-15);
}

// What each normalisation of a group climbs.
struct GroupWeights {
  double centred, divided, uniform;
};

/// The factor before the gradient of p, for rewards 0 and 1; and how often a group is uniform.
GroupWeights group_weights(int size, double p) {
  GroupWeights c{0, 0, std::pow(p, size) + std::pow(1 - p, size)};
  double binomial = std::pow(1 - p, size);
  for (int k = 0; k <= size; ++k) {
    const double share = double(k) / size, v = share * (1 - share);
    c.centred += binomial * v / (p * (1 - p));
    c.divided += binomial * std::sqrt(v) / (p * (1 - p));
    binomial *= double(size - k) / (k + 1) * p / (1 - p);
  }
  return c;
}

TEST(Normalisation, ClimbsOtherFunctionsOfP) {
  for (const int size : {2, 8, 64}) {
    for (const double p : {0.01, 0.1, 0.5, 0.9}) {
      const auto c = group_weights(size, p);
      EXPECT_NEAR(c.centred, (size - 1.0) / size, 1e-12);
      EXPECT_LT(c.divided, 1 / std::sqrt(p * (1 - p)));
    }
  }
  EXPECT_NEAR(group_weights(4000, 0.1).divided, 1 / std::sqrt(0.09), 0.002);
  const double h = 1e-6;  // and that is the derivative of 2 arcsin sqrt(p)
  EXPECT_NEAR((std::asin(std::sqrt(0.1 + h)) - std::asin(std::sqrt(0.1 - h))) / h,
              1 / std::sqrt(0.09), 1e-6);
  for (const double p : {0.5, 0.1, 0.01}) {
    const auto c = group_weights(16, p);
    const std::string at = std::to_string(static_cast<int>(std::lround(100 * p)));
    write_value("rl-zscore", "centred-" + at, c.centred);
    write_value("rl-zscore", "divided-" + at, c.divided);
    write_value("rl-zscore", "limit-" + at, 1 / std::sqrt(p * (1 - p)));
    write_value("rl-zscore", "centred-kept-" + at, c.centred / (1 - c.uniform));
    write_value("rl-zscore", "divided-kept-" + at, c.divided / (1 - c.uniform));
    write_value("rl-zscore", "uniform-" + at, 100 * c.uniform);
  }
}

TEST(Normalisation, IsEstimatedByRealGroups) {  // the derivation, against a list of all triples
  const Process coin{{1.0}, 2, 1, [](std::size_t, std::size_t a) {
                       return std::vector<Event>{{1, 0, 0, a == 0 ? 1.0 : 0.0, true}};
                     }};
  const Tree tree = enumerate(coin);
  Policy policy(tree);
  policy.logits()[0] = -1.2;
  const double p = policy.probability(0, 0);
  const Moments m = of_groups(tree, policy, 3, [](auto r) { return standardised(r); });
  EXPECT_NEAR(m.mean[0], group_weights(3, p).divided * p * (1 - p), 1e-12);
}

// Two of the four averages point along the gradient.
double cosine(std::span<const double> a, std::span<const double> b) {
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    ab += a[i] * b[i], aa += a[i] * a[i], bb += b[i] * b[i];
  return ab / std::sqrt(aa * bb);
}

TEST(Lengths, OneCustomTrainsOnAnotherReward) {
  // The hidden state counts the steps; action 1 answers, right with probability 0.1 to 0.4.
  const Process thinking{
      {1.0, 0, 0, 0}, 2, 4, [](std::size_t step, std::size_t a) {
        const bool last = a == 1 || step == 3;
        const double right = 0.1 * static_cast<double>(step + 1);
        if (!last) return std::vector<Event>{{1, step + 1, 0, 0}};
        return std::vector<Event>{{right, 0, 0, 1, true}, {1 - right, 0, 0, 0, true}};
      }};
  const Tree tree = enumerate(thinking);
  core::Rng rng(4);
  Policy policy(tree);
  policy.randomise(rng, 0.5);
  const double b = objective(tree, policy);
  const auto truth = differentiate(policy, [&](const Policy& p) { return objective(tree, p); });
  const auto length = [](const Trajectory& path) { return static_cast<double>(path.steps.size()); };
  const auto weighted = [&](auto weight) {
    return [&, weight](const Trajectory& path) {
      std::vector<double> g(policy.logits().size());
      for (const Decision& d : path.steps)
        policy.add_score(d, (returns(path, 1)[0] - b) * weight(path), g);
      return g;
    };
  };
  const auto sums = moments(tree, policy, weighted([](const Trajectory&) { return 1.0; })).mean;
  const auto means =
      moments(tree, policy, weighted([&](const Trajectory& p) { return 1 / length(p); })).mean;
  const auto shaped = differentiate(policy, [&](const Policy& p) {
    return moments(tree, p,
                   [&](const Trajectory& path) {
                     return std::vector{(returns(path, 1)[0] - b) / length(path)};
                   })
        .mean[0];
  });
  for (std::size_t i = 0; i < truth.size(); ++i) {
    EXPECT_NEAR(sums[i], truth[i], 1e-9);
    EXPECT_NEAR(means[i], shaped[i], 1e-9);
  }
  std::vector<double> tokens(truth.size());  // the token mean of a batch of two
  for (const Trajectory& x : tree.trajectories) {
    for (const Trajectory& y : tree.trajectories) {
      const double p = policy.probability(x) * policy.probability(y) / (length(x) + length(y));
      for (const Trajectory* path : {&x, &y}) {
        for (const Decision& d : path->steps)
          policy.add_score(d, p * (returns(*path, 1)[0] - b), tokens);
      }
    }
  }
  write_value("rl-lengths", "token-mean", cosine(tokens, truth));
  write_value("rl-lengths", "sequence-mean", cosine(means, truth));
  EXPECT_LT(cosine(means, truth), cosine(tokens, truth));
}

// GAE is the weighted average, and lambda trades bias for variance.
TEST(Gae, AgreesWithTheHandBothWays) {
  const std::array r = {0.0, 0.0, 1.0};
  const std::array v = {0.5, 0.6, 0.7, 0.0};
  const auto a = gae(r, v, 1, 0.5);
  EXPECT_NEAR(a[0], 0.225, 1e-15);
  EXPECT_NEAR(a[1], 0.25, 1e-15);
  EXPECT_NEAR(a[2], 0.3, 1e-15);
  const std::array n_step = {0.6 - 0.5, 0.7 - 0.5, 1 - 0.5};
  EXPECT_NEAR(0.5 * n_step[0] + 0.25 * n_step[1] + 0.25 * n_step[2], a[0], 1e-15);
  EXPECT_NEAR(gae(r, v, 0.9, 1)[0], 0.81 - 0.5, 1e-15);  // lambda 1: the return less the value
  const std::array cut = {0.5, 0.6, 0.7, 0.8};           // cut off, not ended
  EXPECT_NEAR(gae(r, cut, 1, 0.5)[2] - a[2], 0.8, 1e-15);
}

TEST(Gae, TradesBiasForVariance) {
  const Tree tree = enumerate(broken_service(4));
  core::Rng rng(5);
  Policy policy(tree);
  policy.randomise(rng, 0.7);
  std::vector<double> value = values(tree, policy, 1).v;
  for (double& v : value) v += 0.2 * rng.normal();
  const auto truth = differentiate(policy, [&](const Policy& p) { return objective(tree, p); });
  double size = 0, last_variance = 0, last_bias = 1e9;
  for (const double x : truth) size += x * x;
  for (const double lambda : {0.0, 0.5, 0.9, 1.0}) {
    const Moments m = moments(tree, policy, [&](const Trajectory& path) {
      std::vector<double> g(policy.logits().size()), r, v;
      for (const Decision& d : path.steps) {
        r.push_back(d.reward);
        v.push_back(value[d.situation]);
      }
      v.push_back(0);
      const auto a = gae(r, v, 1, lambda);
      for (std::size_t t = 0; t < a.size(); ++t) policy.add_score(path.steps[t], a[t], g);
      return g;
    });
    double bias = 0;
    for (std::size_t i = 0; i < truth.size(); ++i)
      bias += (m.mean[i] - truth[i]) * (m.mean[i] - truth[i]);
    bias = std::sqrt(bias / size);
    if (lambda == 1) {
      EXPECT_LT(bias, 1e-8);
    }
    EXPECT_LT(bias, last_bias);
    EXPECT_GT(m.variance, last_variance);
    last_bias = bias;
    last_variance = m.variance;
    const std::string at = std::to_string(static_cast<int>(std::lround(100 * lambda)));
    write_value("rl-gae-tests", "bias-" + at, 100 * bias);
    write_value("rl-gae-tests", "variance-" + at, m.variance);
  }
}

// What the best critic can explain, decision by decision.
TEST(Critic, CannotExplainWhatIsNotSettled) {
  const Tree tree = enumerate(broken_service(4));
  core::Rng rng(8);
  Policy policy(tree);
  policy.randomise(rng, 0.7);
  const Values x = values(tree, policy, 1);
  const auto explained = [&](std::size_t t, double factor, double offset) {
    double mass = 0, g = 0, gg = 0, e = 0, ee = 0;
    for (const Trajectory& path : tree.trajectories) {
      if (path.steps.size() <= t) continue;
      const double p = policy.probability(path), value = returns(path, 1)[t];
      const double error = value - factor * x.v[path.steps[t].situation] - offset;
      mass += p;
      g += p * value;
      gg += p * value * value;
      e += p * error;
      ee += p * error * error;
    }
    const double var_g = gg / mass - g * g / mass / mass, var_e = ee / mass - e * e / mass / mass;
    return 1 - var_e / var_g;
  };
  double before = -1;
  for (std::size_t t = 0; t < 4; ++t) {
    const double best = explained(t, 1, 0);
    EXPECT_GE(best, before - 1e-12);
    EXPECT_EQ(std::fabs(best) < 1e-12, t == 0);
    before = best;
    EXPECT_NEAR(explained(t, 1, 0.3), best, 1e-12);  // a constant error does not show
    if (t > 0) {
      EXPECT_LT(explained(t, -1, 0), 0);  // worse than nothing does
    }
    write_value("rl-explained", "step-" + std::to_string(t), t == 0 ? 0 : best);
  }
}

// The world's tokens are no steps.
TEST(Turns, TheWorldsTokensAreNoSteps) {
  const std::array r = {0.0, 0.0, 0.0, 0.0, 0.0, 1.0};
  const std::array v = {0.2, 0.3, 0.4, 0.4, 0.5, 0.6, 0.0};
  const std::array mask = {1, 1, 0, 0, 1, 1};
  const auto skipped = gae_over_actions(r, v, mask, 0.99, 0.95);
  const auto naive = gae(r, v, 0.99, 0.95);
  const std::array expected = {0.696308, 0.637223, 0.0, 0.0, 0.4702, 0.4};
  for (std::size_t t = 0; t < 6; ++t) EXPECT_NEAR(skipped[t], expected[t], 1e-6);
  EXPECT_NEAR(naive[1], 0.567433, 1e-6);
  write_value("rl-turns", "verbose", std::pow(0.999, 10'000));
  const std::array all = {1, 1, 1, 1, 1, 1};  // with no tokens of the world the two are one
  EXPECT_EQ(gae_over_actions(r, v, all, 0.99, 0.95), naive);
}

// A potential is a baseline; a bonus is another goal.
TEST(Shaping, PotentialsAreBaselinesAndBonusesAreGoals) {
  const Tree tree = enumerate(broken_service(3));
  core::Rng rng(6);
  Policy policy(tree);
  policy.randomise(rng, 0.5);
  std::vector<double> potential(tree.situations.size());
  for (double& x : potential) x = rng.normal();
  const auto estimate = [&](auto credit) {
    return moments(tree, policy, [&, credit](const Trajectory& path) {
      std::vector<double> g(policy.logits().size());
      const auto c = credit(path);
      for (std::size_t t = 0; t < c.size(); ++t) policy.add_score(path.steps[t], c[t], g);
      return g;
    });
  };
  const auto shaped = [&](Trajectory path) {
    for (std::size_t t = 0; t < path.steps.size(); ++t) {
      const bool last = t + 1 == path.steps.size();
      path.steps[t].reward +=
          (last ? 0 : potential[path.steps[t + 1].situation]) - potential[path.steps[t].situation];
    }
    return returns(path, 1);
  };
  const auto baseline = [&](const Trajectory& path) {
    auto g = returns(path, 1);
    for (std::size_t t = 0; t < g.size(); ++t) g[t] -= potential[path.steps[t].situation];
    return g;
  };
  const auto bonus = [](Trajectory path) {
    for (Decision& d : path.steps) d.reward += d.action == 0 ? 0.06 : 0;
    return returns(path, 1);
  };
  const Moments a = estimate(shaped), b = estimate(baseline), c = estimate(bonus);
  const auto truth = differentiate(policy, [&](const Policy& p) { return objective(tree, p); });
  for (std::size_t i = 0; i < truth.size(); ++i) {
    EXPECT_NEAR(a.mean[i], truth[i], 1e-9);
    EXPECT_NEAR(a.mean[i], b.mean[i], 1e-13);
  }
  EXPECT_NEAR(a.variance, b.variance, 1e-12);
  write_value("rl-shaping", "bonus", cosine(c.mean, truth));
  EXPECT_LT(cosine(c.mean, truth), 0.9999);
}

// Rooms that show themselves, with or without a way back.

/// From the hall (0) to room 1 or 2, or to wait: in the hall, or in an anteroom (3).
Process rooms(bool loop) {
  return {{1.0}, 3, loop ? 6u : 3u, [loop](std::size_t state, std::size_t action) {
            if (state == 0 || state == 3) {
              const std::size_t wait = loop ? 0 : state == 0 ? 3 : 4;
              const std::size_t next = action == 2 ? wait : action + 1;
              return std::vector<Event>{{1, next, next, action == 2 ? -0.3 : 0.0, next == 4}};
            }
            const double pay =
                state == 1 ? 0.2 + 0.1 * static_cast<double>(action) : (action == 1 ? 1.0 : 0.0);
            return std::vector<Event>{{1, state, state, pay, true}};
          }};
}

/// The mean step advantage times the score, over all groups of two; one row per state.
std::vector<double> step_groups(const Tree& tree, const Policy& policy) {
  std::vector<double> mean(policy.logits().size());
  for (const Trajectory& own : tree.trajectories) {
    const auto g = returns(own, 1);
    for (const Trajectory& other : tree.trajectories) {
      const auto h = returns(other, 1);
      const double p = policy.probability(own) * policy.probability(other);
      for (std::size_t t = 0; t < own.steps.size(); ++t) {
        double sum = 0, visits = 0;
        const auto look = [&](const Trajectory& path, const std::vector<double>& to_go) {
          for (std::size_t k = 0; k < path.steps.size(); ++k) {
            if (path.steps[k].situation != own.steps[t].situation) continue;
            sum += to_go[k];
            ++visits;
          }
        };
        look(own, g);
        look(other, h);
        policy.add_score(own.steps[t], p * (g[t] - sum / visits), mean);
      }
    }
  }
  return mean;
}

// Each state's direction is right and its weight is not; a loop turns it a little.
TEST(StepGroups, WeighStatesByWhoElseWasThere) {
  const View last_seen = [](const History& h) {
    return h.empty() ? History{0} : History{h.back()};
  };
  for (const bool loop : {false, true}) {
    const Tree tree = enumerate(rooms(loop), last_seen);
    core::Rng rng(7);
    Policy policy(tree);
    policy.randomise(rng, 0.7);
    if (loop) policy.logits()[2] += 2;  // it likes to wait in the hall
    const auto truth = differentiate(policy, [&](const Policy& p) { return objective(tree, p); });
    const auto step = step_groups(tree, policy);
    for (std::size_t s = 0; s < tree.situations.size(); ++s) {
      const auto reached = [&](const Trajectory& path) {
        double hit = 0;
        for (const Decision& d : path.steps) hit = d.situation == s ? 1 : hit;
        return std::vector{hit};
      };
      const double probability = moments(tree, policy, reached).mean[0];
      const auto row = std::span(step).subspan(3 * s, 3),
                 true_row = std::span(truth).subspan(3 * s, 3);
      const std::string at = (loop ? "loop-" : "tree-") + std::to_string(tree.situations[s][0]);
      if (!loop) {
        for (std::size_t a = 0; a < 3; ++a)
          EXPECT_NEAR(row[a], probability / 2 * true_row[a], 1e-9);
        write_value("rl-gigpo", at, probability / 2);
      } else {
        write_value("rl-gigpo", at,
                    std::acos(std::min(1.0, cosine(row, true_row))) * 180 / std::acos(-1.0));
      }
    }
    write_value("rl-gigpo", loop ? "loop-all" : "tree-all", cosine(step, truth));
  }
  write_value("rl-gigpo", "hand", 0.6 / 2);
}

// The gradient at the logits is one number times a softmax gradient.
TEST(Logits, CarryOneNumberPerToken) {
  const std::array z = {std::log(0.5), std::log(0.3), std::log(0.2)};
  const std::array expected = {0.5, 0.3, -0.8};
  for (std::size_t v = 0; v < 3; ++v) {
    auto up = z, down = z;
    up[v] += 1e-6;
    down[v] -= 1e-6;
    const auto f = [](const std::array<double, 3>& x) { return -(x[2] - log_sum_exp(x)); };
    EXPECT_NEAR((f(up) - f(down)) / 2e-6, expected[v], 1e-9);
  }
}

}  // namespace
}  // namespace rose::labs
