// Tests of the chapter "Log-ratios as rewards: preferences, implicit process rewards, distillation".

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
#include "labs/rl/process.h"

namespace rose::labs {
namespace {

// The expected preference loss over all pairs, and its descent.
constexpr std::size_t kAnswers = 4;
using Row = std::array<double, kAnswers>;

double logistic(double x) {
  return 1 / (1 + std::exp(-x));
}

/// Descends the exact expected loss; weight[i][j] says how often the pair is asked.
Row descend(const Row& reward, const Row& reference, const std::array<Row, kAnswers>& weight,
            double beta, Row z, int steps) {
  for (int step = 0; step < steps; ++step) {
    Row slope{};
    for (std::size_t i = 0; i < kAnswers; ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        // In a table of logits the normaliser cancels: h is linear in them.
        const double h = beta * (z[i] - z[j] - std::log(reference[i] / reference[j]));
        const double pull = beta * weight[i][j] * (logistic(reward[i] - reward[j]) - logistic(h));
        slope[i] += pull;
        slope[j] -= pull;
      }
    }
    for (std::size_t i = 0; i < kAnswers; ++i) z[i] += 4 * slope[i];
  }
  return z;
}

// The minimum is the tilted reference, whichever pairs are asked.
TEST(Preferences, EndAtTheTiltedReference) {
  const Row reward = {1.0, 0.3, -0.5, 0.0}, reference = {0.1, 0.4, 0.3, 0.2};
  const double beta = 0.5;
  Row tilted{};
  double z = 0;
  for (std::size_t i = 0; i < kAnswers; ++i)
    z += tilted[i] = reference[i] * std::exp(reward[i] / beta);
  const std::array<Row, kAnswers> even = {Row{}, Row{1}, Row{1, 1}, Row{1, 1, 1}};
  const std::array<Row, kAnswers> chain = {Row{}, Row{0.2}, Row{0, 3}, Row{0, 0, 1}};
  for (const auto& weight : {even, chain}) {
    const auto p = softmax(descend(reward, reference, weight, beta, {}, 5000));
    for (std::size_t i = 0; i < kAnswers; ++i) EXPECT_NEAR(p[i], tilted[i] / z, 1e-9);
  }
  const std::array<Row, kAnswers> without = {Row{}, Row{1}, Row{1, 1}, Row{}};  // nobody asks of 3
  for (const double start : {-3.0, 3.0}) {
    const auto p = softmax(descend(reward, reference, without, beta, {0, 0, 0, start}, 5000));
    EXPECT_NEAR(p[0] / p[1], tilted[0] / tilted[1], 1e-9);
    write_value("ratio-dpo", start > 0 ? "unasked-high" : "unasked-low", p[3]);
  }
  EXPECT_NEAR(logistic(0.5 * std::log(0.8808 / 0.1192)), logistic(1), 1e-4);
  double by_integral = 0;  // Gumbel noise on both, difference 0.7
  for (double g = -5; g < 25; g += 1e-3)
    by_integral += std::exp(-std::exp(-(g + 0.7))) * std::exp(-g - std::exp(-g)) * 1e-3;
  EXPECT_NEAR(by_integral, logistic(0.7), 1e-6);
}

// Both answers of a pair may fall, and certainty does not stop.
TEST(Preferences, MayLowerBothAnswers) {
  const std::array<std::array<double, 2>, 3> features = {{{1, 0}, {2, 0}, {0, 1}}};
  std::array theta = {0.0, 0.0};
  const auto logits = [&] {
    std::array<double, 3> z{};
    for (std::size_t y = 0; y < 3; ++y)
      z[y] = features[y][0] * theta[0] + features[y][1] * theta[1];
    return z;
  };
  double margin = 0;
  for (int step = 0; step < 200; ++step) {
    const double rate = 0.5 * logistic(-margin);
    for (std::size_t k = 0; k < 2; ++k) theta[k] += rate * (features[0][k] - features[1][k]);
    margin = logits()[0] - logits()[1];
  }
  const auto p = softmax(logits());
  EXPECT_GT(margin, 3);
  EXPECT_LT(p[0], 1.0 / 3);
  EXPECT_LT(p[1], p[0]);
  write_value("ratio-displacement", "chosen", p[0]);
  write_value("ratio-displacement", "rejected", p[1]);
  write_value("ratio-displacement", "third", p[2]);
}

TEST(Preferences, CertaintyDoesNotStop) {
  const double beta = 0.5, tau = 0.25, smoothing = 0.1;
  double plain = 0, squared = 0, smooth = 0;  // the difference of log-ratios, h / beta
  for (int step = 1; step <= 100'000; ++step) {
    plain += 0.1 * beta * logistic(-beta * plain);
    squared -= 0.1 * 2 * (squared - 1 / (2 * tau));
    smooth += 0.1 * beta * (1 - smoothing - logistic(beta * smooth));
    if (step == 1000) write_value("ratio-displacement", "plain-early", plain);
  }
  EXPECT_NEAR(squared, 2, 1e-12);
  EXPECT_NEAR(logistic(beta * smooth), 0.9, 1e-12);
  EXPECT_GT(plain, 15);
  write_value("ratio-displacement", "plain-late", plain);
  write_value("ratio-displacement", "smooth", smooth);
}

// What each loss does to the preferred answer.
double log_sigmoid(double x) {
  return -std::log1p(std::exp(-x));
}

TEST(Preferences, LossesDifferInWhatTheyDoToAFallenWinner) {
  using Loss = std::function<double(double w, double l)>;  // of the two log-ratios
  const double beta = 0.1, tau = 0.1, noise = 0.1;
  const auto mean = [](double ratio) { return (-20 + ratio) / 20; };
  const auto odds = [](double m) { return m - std::log1p(-std::exp(m)); };
  const auto margin = [&](double w, double l) { return beta * (w - l); };
  const std::map<std::string, Loss> losses = {
      {"dpo", [&](double w, double l) { return -log_sigmoid(margin(w, l)); }},
      {"hinge", [&](double w, double l) { return std::max(0.0, 1 - margin(w, l)); }},
      {"ipo", [&](double w, double l) { return std::pow(w - l - 1 / (2 * tau), 2); }},
      {"smoothed",
       [&](double w, double l) {
         return -(1 - noise) * log_sigmoid(margin(w, l)) - noise * log_sigmoid(-margin(w, l));
       }},
      {"robust",
       [&](double w, double l) {
         return (-(1 - noise) * log_sigmoid(margin(w, l)) + noise * log_sigmoid(-margin(w, l))) /
                (1 - 2 * noise);
       }},
      {"kto", [&](double w, double) { return 1 - logistic(beta * w); }},
      {"apo-zero", [&](double w, double l) { return 1 - logistic(beta * w) + logistic(beta * l); }},
      {"apo-down",
       [&](double w, double l) { return logistic(beta * w) + 1 - logistic(margin(w, l)); }},
      {"simpo",
       [&](double w, double l) { return -log_sigmoid(2.5 * (mean(w) - mean(l)) - 1.375); }},
      {"orpo",
       [&](double w, double l) {
         return -mean(w) - 0.1 * log_sigmoid(odds(mean(w)) - odds(mean(l)));
       }},
  };
  const std::map<std::string, std::array<double, 2>> states = {
      {"start", {0, 0}}, {"apart", {10, -10}}, {"fallen", {-30, -100}}};
  for (const auto& [name, loss] : losses) {
    for (const auto& [state, r] : states) {
      const double h = 1e-4, slope = (loss(r[0] + h, r[1]) - loss(r[0] - h, r[1])) / (2 * h);
      write_value("ratio-losses", name + "-" + state, 0.0 - slope);
      const double h_now = beta * (r[0] - r[1]);
      if (name == "dpo") {
        EXPECT_NEAR(-slope, beta * logistic(-h_now), 1e-9);
      }
      if (name == "ipo") {
        EXPECT_NEAR(-slope, 2 * (1 / (2 * tau) - r[0] + r[1]), 1e-6);
      }
      if (name == "kto") {
        EXPECT_NEAR(-slope, beta * logistic(beta * r[0]) * logistic(-beta * r[0]), 1e-9);
      }
    }
  }
}

// The running sum is a soft value, for any two models.
TEST(Implicit, RunningSumsAreSoftValues) {
  const Process writing{{1.0}, 3, 4, [](std::size_t, std::size_t a) {
                          return std::vector<Event>{{1, 0, a, 0}};
                        }};
  const Tree tree = enumerate(writing);
  core::Rng rng(11);
  Policy phi(tree), reference(tree);
  phi.randomise(rng, 0.8);
  reference.randomise(rng, 0.8);
  const double beta = 0.3;
  const auto reward = [&](const Decision& d) {
    return beta * (phi.log_probability(d.situation, d.action) -
                   reference.log_probability(d.situation, d.action));
  };
  std::map<std::size_t, double> mass, weighted, running;  // by the situation a prefix leads to
  double above = 0, mean = 0;
  for (const Trajectory& path : tree.trajectories) {
    const double p = reference.probability(path);
    double q = 0, largest = 0;
    std::vector<double> sums;
    for (const Decision& d : path.steps) {
      sums.push_back(q);
      q += reward(d);
      largest = std::max(largest, q);
    }
    for (std::size_t t = 0; t < path.steps.size(); ++t) {
      const std::size_t prefix = path.steps[t].situation;
      mass[prefix] += p;
      weighted[prefix] += p * std::exp(q / beta);
      running[prefix] = sums[t];
    }
    mean += p * q;
    if (largest >= beta * std::log(2)) above += p;
  }
  for (const auto& [prefix, q] : running)
    EXPECT_NEAR(q, beta * std::log(weighted[prefix] / mass[prefix]), 1e-12);
  EXPECT_LT(mean, 0);
  EXPECT_LE(above, 0.5);
  write_value("ratio-implicit", "above", 100 * above);
  write_value("ratio-implicit", "cap", 0.05 * std::log(1 / 0.2));
  write_value("ratio-implicit", "cap-probability", logistic(0.05 * std::log(1 / 0.2)));
}

// A model fitted to outcomes alone finds the token that decides.
TEST(Implicit, OutcomesSingleOutTheTokenThatDecides) {
  const Process flips{{1.0}, 2, 3, [](std::size_t, std::size_t a) {
                        return std::vector<Event>{{1, 0, a, 0}};
                      }};
  const Tree tree = enumerate(flips);
  Policy phi(tree);
  const Policy reference(tree);  // fair coins
  for (int step = 0; step < 4000; ++step) {
    std::vector<double> slope(phi.logits().size());
    for (const Trajectory& path : tree.trajectories) {
      const double sum = phi.log_probability(path) - reference.log_probability(path);
      const double good = path.steps[1].action == 1 ? 1 : 0;
      for (const Decision& d : path.steps) phi.add_score(d, (good - logistic(sum)) / 8, slope);
    }
    for (std::size_t i = 0; i < slope.size(); ++i) phi.logits()[i] += slope[i];
  }
  for (const Trajectory& path : tree.trajectories) {
    const bool good = path.steps[1].action == 1;
    double sum = 0;
    for (std::size_t t = 0; t < 3; ++t) {
      const Decision& d = path.steps[t];
      const double r = phi.log_probability(d.situation, d.action) + std::log(2);
      sum += r;
      if (t == 1) {
        write_value("ratio-outcome", good ? "success" : "failure", r);
      } else {
        EXPECT_NEAR(r, 0, 1e-9);
      }
    }
    if (good) {
      EXPECT_LT(sum, std::log(2));  // the cap: beta = 1, p = 1/2
      write_value("ratio-outcome", "says", logistic(sum));
    }
  }
}

// Two baselines that agree on answers and differ on tokens.
TEST(Prime, TwoBaselinesAgreeOnAnswersAndDifferOnTokens) {
  const std::vector<std::vector<double>> rewards = {{0.2, -0.1, 0.5}, {0.1, 0.3}};
  const double n = 2, all = 0.2 + 0.2;  // the two answers' means
  for (std::size_t i = 0; i < 2; ++i) {
    double text = 0, code = 0;
    for (std::size_t t = rewards[i].size(); t-- > 0;) {
      text += rewards[i][t] - 0.2 / (n - 1);
      code += rewards[i][t] * n / (n - 1) - all / (n - 1);
      if (i == 0 && t == 2) {
        EXPECT_NEAR(text, 0.3, 1e-12);
        EXPECT_NEAR(code, 0.6, 1e-12);
      }
    }
    EXPECT_NEAR(text, code, 1e-12);
    EXPECT_NEAR(text, i == 0 ? 0.0 : 0.0, 1e-12);
  }
}

// A teacher with memory, students with and without.
Process three_flips() {
  return {{1.0}, 2, 3, [](std::size_t, std::size_t a) { return std::vector<Event>{{1, 0, a, 0}}; }};
}

enum class Credit { to_go, immediate, vocabulary };

/// The direction that one trajectory gives. The trees of teacher and student list the same
/// trajectories in the same order, with other situations.
std::vector<double> pull(const Tree& tree, const Policy& student, const Tree& full,
                         const Policy& teacher, const Trajectory& path, Credit credit) {
  const auto index = static_cast<std::size_t>(&path - tree.trajectories.data());
  const auto& seen = full.trajectories[index].steps;
  std::vector<double> g(student.logits().size());
  double rest = 0;
  for (std::size_t t = path.steps.size(); t-- > 0;) {
    const auto gain = [&](std::size_t action) {
      return teacher.log_probability(seen[t].situation, action) -
             student.log_probability(path.steps[t].situation, action);
    };
    Decision d = path.steps[t];
    rest += gain(d.action);
    if (credit != Credit::vocabulary) {
      student.add_score(d, credit == Credit::to_go ? rest : gain(d.action), g);
    } else {
      for (d.action = 0; d.action < tree.actions; ++d.action)
        student.add_score(d, student.probability(d.situation, d.action) * gain(d.action), g);
    }
  }
  return g;
}

double divergence(const Tree& tree, const Policy& student, const Tree& full,
                  const Policy& teacher) {
  double sum = 0;
  for (std::size_t i = 0; i < tree.trajectories.size(); ++i) {
    const double own = student.log_probability(tree.trajectories[i]);
    sum += std::exp(own) * (own - teacher.log_probability(full.trajectories[i]));
  }
  return sum;
}

// Immediate rewards have less noise, and another end for a student that cannot follow.
TEST(Distillation, ImmediateRewardsFixTheHistories) {
  const Tree full = enumerate(three_flips());
  const Tree blind = enumerate(three_flips(), [](const History& h) { return History{h.size()}; });
  core::Rng rng(6);
  Policy teacher(full), student(full);
  teacher.randomise(rng, 1.5);
  student.randomise(rng, 0.5);
  const auto truth =
      differentiate(student, [&](const Policy& p) { return -divergence(full, p, full, teacher); });
  const std::vector<std::string> names = {"to-go", "immediate", "vocabulary"};
  std::vector<Moments> all;
  for (const Credit credit : {Credit::to_go, Credit::immediate, Credit::vocabulary}) {
    all.push_back(moments(full, student, [&](const Trajectory& path) {
      return pull(full, student, full, teacher, path, credit);
    }));
    write_value("ratio-distillation", names[all.size() - 1] + "-variance", all.back().variance);
    Policy memoryless(blind);
    for (int step = 0; step < 3000; ++step) {
      const auto m = moments(blind, memoryless, [&](const Trajectory& path) {
        return pull(blind, memoryless, full, teacher, path, credit);
      });
      for (std::size_t i = 0; i < m.mean.size(); ++i) memoryless.logits()[i] += 0.3 * m.mean[i];
    }
    write_value("ratio-distillation", names[all.size() - 1] + "-end",
                divergence(blind, memoryless, full, teacher));
  }
  for (std::size_t i = 0; i < truth.size(); ++i) {
    EXPECT_NEAR(all[0].mean[i], truth[i], 1e-8);
    EXPECT_NEAR(all[1].mean[i], all[2].mean[i], 1e-12);
  }
  EXPECT_LT(all[2].variance, all[1].variance);
  EXPECT_LT(all[1].variance, all[0].variance);
}

}  // namespace
}  // namespace rose::labs
