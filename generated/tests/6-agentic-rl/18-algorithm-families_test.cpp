// Tests of the chapter "Algorithm families side by side".

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
#include "labs/rl/gates.h"

namespace rose::labs {
namespace {

// A method is a term per token and an average.
using Batch = std::vector<std::vector<double>>;
const Batch now = {{-0.90, -0.60, -0.30}, {-0.10, -1.00}, {-2.00}};
const Batch old = {{-1.00, -0.50, -0.70}, {-0.20, -0.70}, {-2.30}};
const Batch engine = {{-1.05, -0.50, -0.60}, {-0.20, -0.80}, {-2.10}};
const std::vector<double> advantage = {1.0, -0.5, 0.25};

enum class Mean { tokens, sequences, sums, constant };

/// One token: its live log-probability, the same detached, and where it is.
struct Place {
  double live, fixed;
  std::size_t i, t;
  double a() const { return advantage[i]; }
  double ratio() const { return std::exp(live - old[i][t]); }
  double fixed_ratio(const Batch& anchor) const { return std::exp(fixed - anchor[i][t]); }
};
using Term = std::function<double(const Place&)>;

double value(const Batch& live, const Term& term, Mean mean) {
  double sum = 0, tokens = 0;
  for (std::size_t i = 0; i < live.size(); ++i) {
    const auto length = static_cast<double>(live[i].size());
    tokens += length;
    for (std::size_t t = 0; t < live[i].size(); ++t) {
      const double x = term({live[i][t], now[i][t], i, t});
      sum += mean == Mean::sequences ? x / length : x;
    }
  }
  const auto sequences = static_cast<double>(live.size());
  return sum / (mean == Mean::tokens ? tokens : mean == Mean::constant ? 4 * sequences : sequences);
}

/// The derivatives in the six log-probabilities, flat.
std::vector<double> slopes(const Term& term, Mean mean) {
  std::vector<double> g;
  for (std::size_t i = 0; i < now.size(); ++i) {
    for (std::size_t t = 0; t < now[i].size(); ++t) {
      Batch up = now, down = now;
      up[i][t] += 1e-6;
      down[i][t] -= 1e-6;
      g.push_back((value(up, term, mean) - value(down, term, mean)) / 2e-6);
    }
  }
  return g;
}

// The clip, and the ratio of a sequence.
double clipped(double r, double a, double low, double high) {
  return std::min(r * a, std::clamp(r, 1 - low, 1 + high) * a);
}
double geometric_mean(std::size_t i) {  // of the ratios of a sequence, detached
  double sum = 0;
  for (std::size_t t = 0; t < now[i].size(); ++t) sum += now[i][t] - old[i][t];
  return std::exp(sum / static_cast<double>(now[i].size()));
}

struct Method {
  Mean mean;
  Term term;
};

// The methods, one line each.
const std::map<std::string, Method> methods = {
    {"reinforce", {Mean::sums, [](const Place& p) { return p.a() * p.live; }}},
    {"ppo", {Mean::tokens, [](const Place& p) { return clipped(p.ratio(), p.a(), 0.2, 0.2); }}},
    {"grpo", {Mean::sequences, [](const Place& p) { return clipped(p.ratio(), p.a(), 0.2, 0.2); }}},
    {"drgrpo",
     {Mean::constant, [](const Place& p) { return clipped(p.ratio(), p.a(), 0.2, 0.2); }}},
    {"dapo", {Mean::tokens, [](const Place& p) { return clipped(p.ratio(), p.a(), 0.2, 0.28); }}},
    {"gspo",
     {Mean::sequences,
      [](const Place& p) {
        return clipped(geometric_mean(p.i) * std::exp(p.live - p.fixed), p.a(), 0.2, 0.27);
      }}},
    {"gspo-paper",
     {Mean::sequences,
      [](const Place& p) {
        return clipped(geometric_mean(p.i) * std::exp(p.live - p.fixed), p.a(), 3e-4, 4e-4);
      }}},
    {"sapo",
     {Mean::sequences,
      [](const Place& p) {
        const double tau = p.a() > 0 ? 1.0 : 1.05;
        return 4 / tau / (1 + std::exp(-tau * (p.ratio() - 1))) * p.a();
      }}},
    {"cispo",
     {Mean::tokens,
      [](const Place& p) { return std::min(p.fixed_ratio(old), 1.2) * p.a() * p.live; }}},
    {"dis",
     {Mean::tokens,
      [](const Place& p) {
        return gate_rejection(p.fixed_ratio(engine), 0.3, 5) * p.a() * p.live;
      }}},
    {"dis-attached",
     {Mean::tokens,
      [](const Place& p) {
        return gate_rejection(std::exp(p.live - engine[p.i][p.t]), 0.3, 5) * p.a() * p.live;
      }}},
    {"tis",
     {Mean::tokens,
      [](const Place& p) {
        const double k = std::exp(old[p.i][p.t] - engine[p.i][p.t]);
        return std::min(k, 1.02) * clipped(p.ratio(), p.a(), 0.2, 0.2);
      }}},
    {"icepop",
     {Mean::tokens,
      [](const Place& p) {
        const double k = std::exp(old[p.i][p.t] - engine[p.i][p.t]);
        return (0.95 <= k && k <= 1.08 ? k : 0) * clipped(p.ratio(), p.a(), 0.2, 0.2);
      }}},
};

// Thirteen methods on one batch.
TEST(Families, DoWhatTheSecondProgramSays) {
  const std::map<std::string, std::vector<double>> expected = {
      // value, then six slopes
      {"reinforce", {-0.583333, 0.333333, 0.333333, 0.333333, -0.166667, -0.166667, 0.083333}},
      {"ppo", {0.426237, 0.184195, 0.150806, 0, -0.092098, 0, 0}},
      {"grpo", {0.297903, 0.122797, 0.100537, 0, -0.092098, 0, 0}},
      {"drgrpo", {0.213119, 0.092098, 0.075403, 0, -0.046049, 0, 0}},
      {"dapo", {0.442904, 0.184195, 0.150806, 0, -0.092098, 0, 0}},
      {"gspo", {0.335904, 0.126959, 0.126959, 0.126959, -0.075403, -0.075403, 0}},
      {"gspo-paper", {0.250217, 0, 0, 0, 0, 0, 0}},
      {"sapo", {0.612126, 0.122458, 0.100310, 0.156125, -0.091817, -0.060606, 0.109115}},
      {"cispo", {-0.345315, 0.184195, 0.150806, 0.2, -0.092098, -0.061735, 0.05}},
      {"dis", {-0.346912, 0.193639, 0.150806, 0.224976, -0.092098, -0.068228, 0.046049}},
      {"dis-attached", {-0.346912, 0.019364, 0.060322, 0.157484, -0.082888, 0, -0.046049}},
      {"tis", {0.400492, 0.187879, 0.150806, 0, -0.092098, 0, 0}},
      {"icepop", {0.252348, 0.193639, 0.150806, 0, -0.092098, 0, 0}},
  };
  ASSERT_EQ(methods.size(), expected.size());
  for (const auto& [name, method] : methods) {
    const auto& numbers = expected.at(name);
    EXPECT_NEAR(value(now, method.term, method.mean), numbers[0], 1e-6) << name;
    const auto g = slopes(method.term, method.mean);
    for (std::size_t k = 0; k < 6; ++k) {
      EXPECT_NEAR(g[k], numbers[k + 1], 1e-6) << name << " token " << k;
      write_value("rl-family", name + "-" + std::to_string(k), numbers[k + 1]);
    }
  }
}

// A mask by probabilities, one bound with two names, and a smooth gate.
TEST(MoreGates, FollowFromTheFormula) {
  const auto stopped_by_ratio = [](double before, double after) { return after / before > 1.2; };
  const auto stopped_by_mass = [](double before, double after) { return after - before > 0.1; };
  EXPECT_TRUE(stopped_by_ratio(0.01, 0.03));
  EXPECT_FALSE(stopped_by_mass(0.01, 0.03));
  EXPECT_TRUE(stopped_by_ratio(0.60, 0.74));
  EXPECT_TRUE(stopped_by_mass(0.60, 0.74));
  EXPECT_GT(0.78 / 0.90, 1 - 0.2);  // falling from 0.90 to 0.78: the ratio is inside the clip
  EXPECT_GT(0.90 - 0.78, 0.1);      // and the mass is not

  const double delta = 4, a = -0.7;
  for (double r = 0.01; r < 9; r += 0.01) {
    const double two_sided = std::min(std::min(r, delta) * a, std::clamp(r, 0.8, 1.2) * a);
    EXPECT_NEAR(two_sided, std::max(clipped(r, a, 0.2, 0.2), delta * a), 1e-12);
  }

  const auto gate = [](double w, double k, double lambda) {
    return std::pow(w, k) * std::exp(lambda * (1 - w));
  };
  EXPECT_EQ(gate(1, 2, 3), 1);
  for (double w = 0.01; w < 5; w += 0.01) {
    EXPECT_LE(gate(w, 2, 3), gate(2.0 / 3, 2, 3) + 1e-12);
    EXPECT_LE(gate(w, 3, 2), gate(1.5, 3, 2) + 1e-12);
  }
  EXPECT_NEAR(gate(2.0 / 3, 2, 3), 4.0 / 9 * std::exp(1), 1e-12);

  // Clip, then average; or average, then clip: log-ratios 1.0 and -0.9, bound 0.4.
  const double before = (std::min(1.0, 0.4) + -0.9) / 2, after = std::min((1.0 - 0.9) / 2, 0.4);
  EXPECT_NEAR(before, -0.25, 1e-12);
  EXPECT_NEAR(after, 0.05, 1e-12);
}

// One parameter, three gates.
TEST(Cispo, OneParameterThreeGates) {
  for (const double r : {0.5, 1.0, 3.0}) {
    const std::string at = std::to_string(static_cast<int>(10 * r));
    const double above_only = std::min(r, 0.28);  // the parameter is the bound
    const double both = gate_cispo(r, 0.2, 0.28), no_floor = gate_cispo(r, 1.0, 0.28);
    write_value("rl-cispo-bounds", "above-" + at, above_only);
    write_value("rl-cispo-bounds", "both-" + at, both);
    write_value("rl-cispo-bounds", "no-floor-" + at, no_floor);
    write_value("rl-cispo-bounds", "five-" + at, std::min(r, 5.0));
    EXPECT_LE(above_only, no_floor);
    EXPECT_LE(no_floor, both);
  }
}

// Guards decide what happens to nearly equal rewards.
TEST(Guards, DecideAboutNearlyEqualRewards) {
  const std::array rewards = {0.5, 0.5001};
  EXPECT_NEAR(standardised(rewards, 1e-8)[1], 1, 1e-3);
  EXPECT_NEAR(standardised(rewards, 1e-6)[1], 0.98, 1e-3);
  EXPECT_NEAR(standardised(rewards, 1e-4)[1], 1.0 / 3, 1e-3);
  const std::array four = {0.0, 1.0, 1.0, 2.0};
  EXPECT_NEAR(standardised(four)[3], std::sqrt(2), 1e-12);
  EXPECT_NEAR(standardised(four)[3] * std::sqrt(0.75), 1.2247, 1e-4);  // the sample's deviation
  int kept = 0;
  for (std::size_t i = 0; i < old.size(); ++i) {
    for (std::size_t t = 0; t < old[i].size(); ++t) {
      const double k = std::exp(old[i][t] - engine[i][t]);
      kept += 0.95 <= k && k <= 1.08;
    }
  }
  EXPECT_EQ(kept, 3);
}

}  // namespace
}  // namespace rose::labs
