// Tests of the chapter "Rollout systems".

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
#include "labs/rl/schedule.h"
#include "rose/core/rng.h"

namespace rose::labs {
namespace {

// Without lag, an update takes its longest episode and the time of training.
std::function<double()> heavy(core::Rng& rng) {
  return [&rng] { return std::exp(double{rng.normal()}); };
}

TEST(Rollouts, WaitForTheLongest) {
  core::Rng rng(1);
  const Timeline t = simulate({}, 400, heavy(rng));
  double expected = 0, used = 0;
  Running longest;
  for (std::size_t update = 0; update < 400; ++update) {
    double most = 0;
    for (std::size_t i = 64 * update; i < 64 * (update + 1); ++i) {
      most = std::max(most, t.trained[i].length);
      used += t.trained[i].length;
      EXPECT_EQ(t.trained[i].lag, 0);
    }
    longest.add(most);
    expected += most + 1;
  }
  EXPECT_NEAR(t.time, expected, 1e-6 * expected);
  EXPECT_NEAR(t.sampled, used, 1e-6 * used);
  write_value("rl-waiting", "longest", longest.mean());
  write_value("rl-waiting", "used", 100 * used / (64 * (expected - 400)));
}

// Speed and lag as the bound grows.
TEST(Rollouts, GainMostFromTheFirstStepOfLag) {
  for (const int slots : {64, 256}) {
    double synchronous = 0, previous = 0;
    for (const int bound : {0, 1, 2, 4, 8, 16}) {
      core::Rng rng(2);
      const Timeline t = simulate({.slots = slots, .bound = bound}, 400, heavy(rng));
      Running lag;
      int worst = 0;
      for (const Episode& e : t.trained) lag.add(e.lag), worst = std::max(worst, e.lag);
      if (bound == 0) synchronous = t.time;
      const double gain = synchronous / t.time;
      EXPECT_GE(gain, previous - 0.02);
      EXPECT_TRUE(bound == 0 || worst > bound);  // see the next section
      previous = gain;
      const std::string at = "-" + std::to_string(slots) + "-" + std::to_string(bound);
      write_value("rl-lag-buys", "gain" + at, gain);
      write_value("rl-lag-buys", "used" + at, 100 * t.sampled / (slots * t.time));
      write_value("rl-lag-buys", "mean" + at, lag.mean());
      write_value("rl-lag-buys", "worst" + at, worst);
    }
  }
}

// Four orders of training under one admission rule.
TEST(Rollouts, BoundTheLagOnlyInTheOrderOfStarting) {
  const auto run = [](SchedulePlan plan, const std::string& name, int slots = 128) {
    core::Rng rng(3);
    plan.slots = slots;
    plan.bound = 4;
    const Timeline t = simulate(plan, 400, heavy(rng));
    Running length, beyond;
    double worst = 0, lost_time = 0;
    for (const Episode& e : t.trained) {
      worst = std::max(worst, double(e.lag));
      length.add(e.length);
      beyond.add(e.lag > 4 ? 100.0 : 0.0);
    }
    for (const Episode& e : t.discarded) lost_time += e.length;
    const auto lost = double(t.discarded.size()), kept = double(t.trained.size());
    write_value("rl-lag-bounds", name + "-speed", 400 / t.time);
    write_value("rl-lag-bounds", name + "-worst", worst);
    write_value("rl-lag-bounds", name + "-beyond", beyond.mean());
    write_value("rl-lag-bounds", name + "-length", length.mean());
    write_value("rl-lag-bounds", name + "-lost", 100 * lost / (lost + kept));
    write_value("rl-lag-bounds", name + "-lost-time",
                100 * lost_time / (lost_time + kept * length.mean()));
    return std::pair(worst, length.mean());
  };
  EXPECT_LE(run({.order = TrainingOrder::starting}, "started").first, 4);
  EXPECT_GT(run({.order = TrainingOrder::oldest_finished}, "oldest").first, 4);
  const auto [worst, mean] = run({}, "finished");
  EXPECT_GT(worst, 4);
  const auto [kept, shorter] = run({.oldest = 4}, "dropped");
  EXPECT_LE(kept, 4);
  EXPECT_LT(shorter, 0.9 * mean);
  run({.oldest = 4}, "fewer", 64);  // sampling is the limit: hardly anything waits
}

// The mean length of the first updates.
TEST(Rollouts, BeginWithTheShort) {
  Running first, later, ordered;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    core::Rng rng(seed, 1), same(seed, 1);
    const Timeline t = simulate({.slots = 256, .bound = 4}, 40, heavy(rng));
    for (std::size_t i = 0; i < 64; ++i) first.add(t.trained[i].length);
    for (std::size_t i = std::size_t{30} * 64; i < std::size_t{40} * 64; ++i)
      later.add(t.trained[i].length);
    const Timeline o =
        simulate({.slots = 256, .bound = 4, .order = TrainingOrder::starting}, 40, heavy(same));
    for (std::size_t i = 0; i < 64; ++i) ordered.add(o.trained[i].length);
  }
  EXPECT_LT(first.mean(), 0.5 * std::exp(0.5));
  EXPECT_NEAR(later.mean(), std::exp(0.5), 0.1);
  EXPECT_NEAR(ordered.mean(), std::exp(0.5), 0.1);
  write_value("rl-short-first", "first", first.mean());
  write_value("rl-short-first", "later", later.mean());
}

// The ratios that the text draws from published tables.
TEST(Rollouts, RatiosOfPublishedTables) {
  write_value("rl-speed-tables", "areal-one", 47.8 / 27.1);
  write_value("rl-speed-tables", "areal-rest", 52.0 / 47.8);
  EXPECT_NEAR(47.8 / 27.1, 1.76, 0.005);
  const auto apart = [](double g, double t, double machines, double n) {
    return std::max(g / n, t / (machines - n));
  };
  EXPECT_NEAR(apart(6, 2, 8, 6), (6.0 + 2) / 8, 1e-12);
  EXPECT_NEAR(apart(6, 2, 8, 4), 1.5, 1e-12);
  for (double n = 0.5; n < 8; n += 0.5) EXPECT_GE(apart(6, 2, 8, n), 1 - 1e-12);
}

// What it takes to move the weights.
TEST(Rollouts, HandOverTakesBytesOverBandwidth) {
  const double parameters = 30, link = 50;  // billions; GB/s
  write_value("rl-handover", "parameters", parameters);
  write_value("rl-handover", "link", link);
  write_value("rl-handover", "seconds", 2 * parameters / link);
  EXPECT_NEAR(2 * parameters / link, 1.2, 1e-12);
}

// How many sampled spellings are not the encoder's.
std::vector<std::string> encode(const std::string& text) {  // longest first over {a, b, ab}
  std::vector<std::string> out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t n = text.compare(i, 2, "ab") == 0 ? 2 : 1;
    out.push_back(text.substr(i, n));
    i += n;
  }
  return out;
}

TEST(Tokens, AreNotRecoveredFromText) {
  EXPECT_EQ(encode("ab").size(), 1u);  // drawn as two
  core::Rng rng(5);
  const std::array<std::string, 3> vocabulary = {"a", "b", "ab"};
  for (const int length : {10, 100}) {
    Running changed;
    for (int episode = 0; episode < 4000; ++episode) {
      std::vector<std::string> drawn;
      std::string text;
      for (int t = 0; t < length; ++t) {
        const float u = rng.uniform();  // a policy that nearly always spells as the encoder does
        drawn.push_back(vocabulary[u < 0.01f ? 0 : u < 0.02f ? 1 : 2]);
        text += drawn.back();
      }
      changed.add(encode(text) != drawn ? 1.0 : 0.0);
    }
    write_value("rl-spellings-test", "changed-" + std::to_string(length), 100 * changed.mean());
  }
}

// A bound on the product rejects long episodes.
TEST(Mismatch, ABoundOnTheProductRejectsLongEpisodes) {
  const auto normal_cdf = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
  const double s = 0.02;
  double before = 0;
  for (const int n : {100, 1000, 10'000, 40'000}) {
    const double deviation = s * std::sqrt(n);
    const double lost = 1 - normal_cdf((std::log(3) - 0.5 * n * s * s) / deviation);
    const double rejected = 1 - normal_cdf((std::log(3) + 0.5 * n * s * s) / deviation);
    write_value("rl-sequence-mask", "lost-" + std::to_string(n), 100 * lost);
    write_value("rl-sequence-mask", "rejected-" + std::to_string(n), 100 * rejected);
    EXPECT_GE(lost, before);
    before = lost;
    Running tried;  // the same by drawing from the engine's policy
    core::Rng rng(6);
    for (int i = 0; i < 200'000; ++i) {
      const double l = deviation * double{rng.normal()} - 0.5 * n * s * s;
      if (n <= 10'000) tried.add(l > std::log(3) ? std::exp(l) : 0.0);
    }
    EXPECT_TRUE(n > 10'000 || std::fabs(tried.mean() - lost) < 0.08);
  }
  EXPECT_GT(before, 0.9);
}

// Restarts cost exponentially, and losses select the short.
TEST(Faults, CostTheLongMost) {
  core::Rng rng(7);
  const double rate = 0.1;
  for (const double length : {1.0, 10.0, 30.0}) {
    Running time;
    for (int i = 0; i < 20'000; ++i) {
      double spent = 0;
      for (;;) {
        const double fault = -std::log1p(-rng.uniform64()) / rate;
        spent += std::min(fault, length);
        if (fault > length) break;
      }
      time.add(spent);
    }
    const double mean = std::expm1(rate * length) / rate;
    EXPECT_NEAR(time.mean() / mean, 1, 0.05);
    const double ten = 10 * std::expm1(rate * length / 10) / rate;
    write_value("rl-faults", "restart-" + std::to_string(int(length)), mean / length);
    write_value("rl-faults", "resume-" + std::to_string(int(length)), ten / length);
    write_value("rl-faults", "survive-" + std::to_string(int(length)),
                100 * std::exp(-rate * length));
  }
}

// What reaches the gradient.
TEST(Rollouts, YieldIsAProductOfShares) {
  const double uniform = std::pow(0.9, 8) + std::pow(0.1, 8);
  EXPECT_NEAR(uniform, 0.43, 0.005);
  write_value("rl-yield", "share", (1 - 0.491) * (1 - uniform) * 0.95);
}

}  // namespace
}  // namespace rose::labs
