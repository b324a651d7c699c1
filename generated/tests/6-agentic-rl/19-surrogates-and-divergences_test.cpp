// Tests of the chapter "Surrogates and divergences: how far to step".

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
#include "labs/rl/gates.h"

namespace rose::labs {
namespace {

// The distance between two policies, and the surrogate.
double largest_distance(const Tree& tree, const Policy& a, const Policy& b) {
  double largest = 0;
  for (std::size_t s = 0; s < tree.situations.size(); ++s) {
    double distance = 0;
    for (std::size_t i = 0; i < tree.actions; ++i)
      distance += 0.5 * std::fabs(a.probability(s, i) - b.probability(s, i));
    largest = std::max(largest, distance);
  }
  return largest;
}

/// Ratios of now to old along the paths of old, times old's advantages.
double surrogate(const Tree& tree, const Policy& old, const Values& x, const Policy& now) {
  return moments(tree, old,
                 [&](const Trajectory& path) {
                   double sum = 0;
                   for (const Decision& d : path.steps) {
                     const double r = now.probability(d.situation, d.action) /
                                      old.probability(d.situation, d.action);
                     sum += r * (x.q[d.situation * tree.actions + d.action] - x.v[d.situation]);
                   }
                   return std::vector{sum};
                 })
      .mean[0];
}

// The difference lemma is exact, the surrogate right to first order and within its bound.
TEST(Difference, SurrogateIsFirstOrderAndWithinItsBound) {
  const std::size_t horizon = 3;
  const Tree tree = enumerate(broken_service(horizon));
  core::Rng rng(1);
  Policy old(tree), direction(tree);
  old.randomise(rng, 0.5);
  direction.randomise(rng, 1);
  const Values x = values(tree, old, 1);
  const auto advantage = [&](const Decision& d) {
    return x.q[d.situation * 3 + d.action] - x.v[d.situation];
  };
  double largest = 0;
  for (std::size_t cell = 0; cell < x.q.size(); ++cell)
    largest = std::max(largest, std::fabs(x.q[cell] - x.v[cell / 3]));
  const auto truth = differentiate(old, [&](const Policy& p) { return objective(tree, p); });
  const auto slope =
      differentiate(old, [&](const Policy& p) { return surrogate(tree, old, x, p); });
  for (std::size_t i = 0; i < truth.size(); ++i) EXPECT_NEAR(truth[i], slope[i], 1e-9);
  double before = 0;
  for (const double epsilon : {0.25, 0.5, 1.0}) {
    Policy now = old;
    for (std::size_t i = 0; i < now.logits().size(); ++i)
      now.logits()[i] += epsilon * direction.logits()[i];
    const double gain = objective(tree, now) - objective(tree, old);
    const double lemma = moments(tree, now, [&](const Trajectory& path) {
                           double sum = 0;
                           for (const Decision& d : path.steps) sum += advantage(d);
                           return std::vector{sum};
                         }).mean[0];
    EXPECT_NEAR(gain, lemma, 1e-13);
    const double alpha = largest_distance(tree, now, old), claimed = surrogate(tree, old, x, now);
    const double error = std::fabs(gain - claimed);
    const double bound = 2 * alpha * alpha * largest * static_cast<double>(horizon * (horizon - 1));
    EXPECT_LE(error, bound);
    EXPECT_GT(error, before);
    before = error;
    const std::string at = std::to_string(static_cast<int>(100 * epsilon));
    for (const auto& [name, value] : std::map<std::string, double>{{"gain", gain},
                                                                   {"surrogate", claimed},
                                                                   {"error", error},
                                                                   {"bound", bound},
                                                                   {"alpha", alpha}})
      write_value("rl-difference", name + "-" + at, value);
  }
}

// Clipping stops the sampled tokens, late and one by one, and nothing else.
TEST(Clipping, IsNoTrustRegion) {
  const std::array start = {std::log(0.5), std::log(0.3), std::log(0.2)};
  const auto climb = [&](double rate, int steps) {
    auto z = start;
    const auto old = softmax(start);
    for (int i = 0; i < steps; ++i) {
      const auto p = softmax(z);
      const double r0 = p[0] / old[0], r1 = p[1] / old[1];
      const double c0 = r0 <= 1.2 ? r0 : 0, c1 = r1 >= 0.8 ? -r1 : 0;  // A = 1 and -1
      for (std::size_t v = 0; v < 3; ++v)
        z[v] += rate * (c0 * ((v == 0 ? 1 : 0) - p[v]) + c1 * ((v == 1 ? 1 : 0) - p[v]));
    }
    const auto p = softmax(z);
    return std::array{p[0] / old[0], p[1] / old[1], p[2] / old[2], kl(old, p)};
  };
  const auto patient = climb(0.01, 1000), bold = climb(2, 1);
  for (std::size_t i = 0; i < 4; ++i) {
    write_value("rl-clip", "patient-" + std::to_string(i), patient[i]);
    write_value("rl-clip", "bold-" + std::to_string(i), bold[i]);
  }
  EXPECT_NEAR(climb(2, 50)[0], bold[0], 1e-12);  // fifty more steps bring nothing back
  EXPECT_GT(patient[0], 1.19);
  EXPECT_GT(bold[0], 1.2);
}

// The gates are the derivatives of what is written.
TEST(Gates, AreTheDerivativesOfWhatIsWritten) {
  const double h = 1e-6;
  for (const double r : {0.3, 0.75, 0.9, 1.0, 1.1, 1.3, 3.0, 6.0}) {
    const auto slope = [&](auto objective) {  // d objective(r e^x) / dx at 0: along ln pi
      return (objective(r * std::exp(h)) - objective(r * std::exp(-h))) / (2 * h);
    };
    for (const double a : {1.0, -1.0}) {
      const auto ppo = [&](double x) { return std::min(x * a, std::clamp(x, 0.8, 1.28) * a); };
      const auto dual = [&](double x) { return a < 0 ? std::max(ppo(x), 3.5 * a) : ppo(x); };
      const double tau = a > 0 ? 1.0 : 1.05;
      const auto sapo = [&](double x) { return 4 / tau / (1 + std::exp(-tau * (x - 1))) * a; };
      EXPECT_NEAR(slope(ppo), gate_ppo(r, a, 0.2, 0.28) * a, 1e-8);
      EXPECT_NEAR(slope(dual), gate_dual_clip(r, a, 0.2, 0.28, 3.5) * a, 1e-8);
      EXPECT_NEAR(slope(sapo), gate_sapo(r, tau) * a, 1e-8);
    }
  }
  EXPECT_EQ(gate_sapo(1, 1), 1);
  EXPECT_EQ(gate_sapo(1, 7), 1);
  for (const double r : {0.5, 1.0, 1.5, 3.0, 6.0}) {
    const std::string at = std::to_string(static_cast<int>(10 * r));
    write_value("rl-gates", "ppo-" + at, gate_ppo(r, 1, 0.2, 0.2));
    write_value("rl-gates", "ppo-negative-" + at, gate_ppo(r, -1, 0.2, 0.2));
    write_value("rl-gates", "cispo-" + at, gate_cispo(r, 1, 1));
    write_value("rl-gates", "rejection-" + at, gate_rejection(r, 0.8, 3));
    write_value("rl-gates", "sapo-" + at, gate_sapo(r, 1));
  }
  write_value("rl-gates", "rounds", std::ceil(std::log(50) / std::log(1.2)));
}

// A differentiated ratio gives every unbiased estimator the right gradient.
TEST(KlToken, RatioRepairsTheGradient) {
  const std::array z = {0.5, -0.3, 1.1, 0.0};
  const auto reference = softmax(std::array{0.1, 0.4, -0.6, 0.2});
  const auto old = softmax(std::array{0.4, -0.1, 0.9, 0.1});
  const auto now = softmax(z);
  const auto expectation = [&](const std::vector<double>& p,
                               auto k) {  // over tokens of the old policy
    double sum = 0;
    for (std::size_t x = 0; x < 4; ++x)
      sum += old[x] * p[x] / old[x] * k(kl_sample(std::log(p[x]), std::log(reference[x])));
    return sum;
  };
  for (std::size_t i = 0; i < 4; ++i) {
    const auto slope = [&](auto f) {
      auto up = z, down = z;
      up[i] += 1e-5;
      down[i] -= 1e-5;
      return (f(softmax(up)) - f(softmax(down))) / 2e-5;
    };
    const double truth = slope([&](const std::vector<double>& p) { return kl(p, reference); });
    const auto k3 = [&](const std::vector<double>& p) {
      return expectation(p, [](KlSample s) { return s.k3; });
    };
    const auto k1 = [&](const std::vector<double>& p) {
      return expectation(p, [](KlSample s) { return s.k1; });
    };
    EXPECT_NEAR(slope(k3), truth, 1e-9);
    EXPECT_NEAR(slope(k1), truth, 1e-9);
    double by_hand = 0;
    for (std::size_t x = 0; x < 4; ++x)
      by_hand += now[x] * std::log(now[x] / reference[x]) * ((x == i ? 1 : 0) - now[i]);
    EXPECT_NEAR(by_hand, truth, 1e-9);
  }
  const KlSample near = kl_sample(0.1, 0), far = kl_sample(-0.5, 0);
  EXPECT_NEAR(near.k3, 0.0048374, 1e-7);
  EXPECT_NEAR(far.k3, 0.1487213, 1e-7);
  EXPECT_NEAR((1 - std::exp(3)) / -3, 6.36, 0.005);
}

// Token losses hold the histories fixed.
TEST(KlSequence, TokenLossesHoldTheHistoriesFixed) {
  const Process writing{{1.0}, 3, 4, [](std::size_t, std::size_t a) {  // four tokens of three kinds
                          return std::vector<Event>{{1, 0, a, 0}};
                        }};
  const Tree tree = enumerate(writing);
  core::Rng rng(2);
  Policy policy(tree), reference(tree);
  policy.randomise(rng, 0.8);
  reference.randomise(rng, 0.8);
  const auto log_ratio = [&](const Decision& d) {
    return policy.log_probability(d.situation, d.action) -
           reference.log_probability(d.situation, d.action);
  };
  const auto truth = differentiate(policy, [&](const Policy& p) {
    return moments(tree, p,
                   [&](const Trajectory& path) {
                     return std::vector{p.log_probability(path) - reference.log_probability(path)};
                   })
        .mean[0];
  });
  enum Form { to_go, k1_loss, k2_loss, k3_loss };
  const std::vector<std::string> names = {"to-go", "k1", "k2", "k3"};
  for (const Form form : {to_go, k1_loss, k2_loss, k3_loss}) {
    const Moments m = moments(tree, policy, [&](const Trajectory& path) {
      std::vector<double> g(policy.logits().size());
      double rest = 0;
      for (std::size_t t = path.steps.size(); t-- > 0;) {
        const double l = log_ratio(path.steps[t]);
        rest += l;
        const std::array weight = {rest, 1.0, l, 1 - std::exp(-l)};
        policy.add_score(path.steps[t], weight[form], g);
      }
      return g;
    });
    double error = 0, size = 0, dot = 0, own = 0;
    for (std::size_t i = 0; i < truth.size(); ++i) {
      error += (m.mean[i] - truth[i]) * (m.mean[i] - truth[i]);
      size += truth[i] * truth[i];
      dot += m.mean[i] * truth[i];
      own += m.mean[i] * m.mean[i];
    }
    if (form == to_go) {
      EXPECT_LT(std::sqrt(error / size), 1e-8);
    } else {
      EXPECT_GT(std::sqrt(error / size), 0.05);
    }
    if (form == k1_loss) {
      EXPECT_LT(own, 1e-20);
    }
    write_value("rl-kl-sequence", names[form] + "-cosine",
                form == k1_loss ? 0 : dot / std::sqrt(size * own));
    write_value("rl-kl-sequence", names[form] + "-variance", m.variance);
  }
}

// The penalised optimum is the tilted reference.
TEST(KlOptimum, IsTheTiltedReference) {
  const double beta = 0.5, e2 = std::exp(2.0), z = (e2 + 1) / 2, best = e2 / (e2 + 1);
  const auto penalised = [&](double p) {
    return p - beta * kl(std::array{p, 1 - p}, std::array{0.5, 0.5});
  };
  EXPECT_NEAR(best, 0.881, 5e-4);
  EXPECT_NEAR(penalised(best), beta * std::log(z), 1e-14);
  EXPECT_NEAR(penalised(best), 0.717, 5e-4);
  for (double p = 0.01; p < 1; p += 0.01) {
    const double gap = beta * kl(std::array{p, 1 - p}, std::array{best, 1 - best});
    EXPECT_NEAR(penalised(p), beta * std::log(z) - gap, 1e-13);
  }
}

// The change of the entropy is minus a covariance.
TEST(Entropy, FallsByACovariance) {
  core::Rng rng(3);
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<double> z(6), step(6);
    for (double& x : z) x = 2 * rng.normal();
    for (double& x : step) x = 1e-6 * rng.normal();
    const auto p = softmax(z);
    double mean_log = 0, mean_step = 0, covariance = 0;
    for (std::size_t a = 0; a < 6; ++a) {
      mean_log += p[a] * std::log(p[a]);
      mean_step += p[a] * step[a];
    }
    for (std::size_t a = 0; a < 6; ++a) {
      covariance += p[a] * (std::log(p[a]) - mean_log) * (step[a] - mean_step);
      z[a] += step[a];
    }
    EXPECT_NEAR(entropy(softmax(z)) - entropy(p), -covariance, 1e-11);
  }
  const std::vector<double> wordings(8, 1.0 / 8), plans(2, 0.5);
  write_value("rl-entropy", "wordings", entropy(wordings) / std::log(2));
  write_value("rl-entropy", "plans", entropy(plans) / std::log(2));
}

// Divergence grows with the square of the lag, and admission bounds the lag.
TEST(Staleness, GrowsWithTheSquareOfTheLag) {
  std::array z = {0.2, 0.0, -0.4, 0.1};
  const std::array reward = {1.0, 0.0, 0.5, 0.2};
  const auto first = softmax(z);
  std::map<int, double> drift;
  for (int lag = 1; lag <= 8; ++lag) {
    const auto p = softmax(z);
    double mean = 0;
    for (std::size_t a = 0; a < 4; ++a) mean += p[a] * reward[a];
    for (std::size_t a = 0; a < 4; ++a) z[a] += 0.05 * p[a] * (reward[a] - mean);
    drift[lag] = kl(first, softmax(z));
  }
  EXPECT_NEAR(drift[2] / drift[1], 4, 0.1);
  EXPECT_NEAR(drift[8] / drift[1], 64, 3);
  write_value("rl-staleness", "eight", drift[8] / drift[1]);
}

TEST(Staleness, AdmissionBoundsTheLag) {
  core::Rng rng(4);
  for (const int limit : {0, 1, 4}) {
    const int batch = 8;
    int version = 0, started = 0, finished = 0, worst = 0;
    std::vector<int> born;  // the version under which each sample was started, in order
    for (int tick = 0; tick < 4000; ++tick) {
      const bool admitted = started / batch <= version + limit;  // sample number started + 1
      if (admitted && rng.uniform() < 0.7f) {
        born.push_back(version);
        ++started;
      } else if (finished < started) {
        ++finished;
      }
      if (finished == (version + 1) * batch) {  // train on the next batch, in order of starting
        for (int i = version * batch; i < finished; ++i)
          worst = std::max(worst, version - born[static_cast<std::size_t>(i)]);
        ++version;
      }
    }
    EXPECT_LE(worst, limit);
    EXPECT_EQ(worst, limit);  // and the bound is reached
    EXPECT_GT(version, 50);
  }
}

// The cap on the error decides where the value ends, the other only how fast.

/// Targets for values [T + 1] from rewards and ratios [T].
std::vector<double> v_trace(std::span<const double> rewards, std::span<const double> values,
                            std::span<const double> ratios, double gamma, double rho, double c) {
  std::vector<double> target(values.begin(), values.end());
  for (std::size_t t = rewards.size(); t-- > 0;) {
    const double error = rewards[t] + gamma * values[t + 1] - values[t];
    target[t] = values[t] + std::min(rho, ratios[t]) * error +
                gamma * std::min(c, ratios[t]) * (target[t + 1] - values[t + 1]);
  }
  return target;
}

TEST(VTrace, CapsDecideWhereAndHowFast) {
  const auto v = v_trace(std::array{0.0, 0.0, 1.0}, std::array{0.2, 0.3, 0.4, 0.0},
                         std::array{2.0, 0.5, 1.2}, 0.9, 1, 1);
  EXPECT_NEAR(v[0], 0.54, 1e-12);
  EXPECT_NEAR(v[1], 0.60, 1e-12);
  EXPECT_NEAR(v[2], 1.00, 1e-12);
  const std::array mu = {0.8, 0.2}, pi = {0.2, 0.8}, reward = {0.0, 1.0};
  for (const auto& [cap, expected] : std::map<double, double>{{1, 0.5}, {2, 2.0 / 3}, {4, 0.8}}) {
    double value = 0;
    for (int sweep = 0; sweep < 500; ++sweep) {  // move by the mean of the one-step target
      double move = 0;
      for (std::size_t a = 0; a < 2; ++a) {
        const std::array now = {value, 0.0};
        move += mu[a] *
                (v_trace(std::span(&reward[a], 1), now, std::array{pi[a] / mu[a]}, 1, cap, 1)[0] -
                 value);
      }
      value += 0.5 * move;
    }
    EXPECT_NEAR(value, expected, 1e-9);
  }
}

}  // namespace
}  // namespace rose::labs
