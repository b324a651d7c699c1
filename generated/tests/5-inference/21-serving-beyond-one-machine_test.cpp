// Tests of the chapter "Serving beyond one machine".

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

#include <fmt/format.h>

#include "labs/evidence/values.h"
#include "labs/inference/routing.h"
#include "rose/core/rng.h"

namespace rose::labs {
namespace {

// Eight queues are not one queue.
double simulated_wait(int servers, double load, bool pooled, int requests) {
  core::Rng rng(5);
  const auto exponential = [&](double mean) { return -std::log1p(-rng.uniform64()) * mean; };
  std::vector<double> free_at(static_cast<std::size_t>(servers), 0.0);
  double now = 0, waited = 0;
  for (int i = 0; i < requests; ++i) {
    now += exponential(1.0 / (load * servers));
    double& server = pooled ? *std::ranges::min_element(free_at)
                            : free_at[rng.below(static_cast<std::uint32_t>(servers))];
    const double start = std::max(now, server);
    waited += start - now;
    server = start + exponential(1.0);
  }
  return waited / requests;
}

TEST(Serving, EightQueuesAreNotOneQueue) {
  const double rho = 0.8, pooled = erlang_c(8, 8 * rho) / (8 * (1 - rho)), random = rho / (1 - rho);
  EXPECT_NEAR(simulated_wait(8, rho, true, 400'000), pooled, 0.02);
  EXPECT_NEAR(simulated_wait(8, rho, false, 400'000), random, 0.4);
  EXPECT_NEAR(erlang_c(1, 0.3), 0.3, 1e-12);
  write_value("serving-erlang", "pooled", pooled);
  write_value("serving-erlang", "random", random);
  write_value("serving-erlang", "ratio", random / pooled);
}

// Caches add up when every text has a home.
TEST(Serving, CachesAddUpWhenEveryTextHasAHome) {
  constexpr std::uint32_t texts = 400, requests = 200'000;
  const std::vector<std::uint64_t> replicas{11, 12, 13, 14};
  for (const bool home : {false, true}) {
    core::Rng rng(9);
    std::vector<LeastRecentlyUsed> caches(replicas.size(), LeastRecentlyUsed(100));
    int hits = 0;
    for (std::uint32_t i = 0; i < requests; ++i) {
      const std::uint64_t text = rng.below(texts);
      const std::size_t to = home ? home_of(text, replicas) : rng.below(4);
      hits += caches[to].touch(text) ? 1 : 0;
    }
    const double share = static_cast<double>(hits) / requests;
    EXPECT_NEAR(share, home ? 1.0 : 0.25, home ? 0.12 : 0.01);
    write_value("serving-affine", home ? "home" : "any", 100 * share);
  }
}

TEST(Serving, WhenAReplicaLeavesOnlyItsTextsMove) {
  std::vector<std::uint64_t> replicas{1, 2, 3, 4, 5};
  const auto fewer = std::vector<std::uint64_t>(replicas.begin(), replicas.end() - 1);
  auto more = replicas;
  more.push_back(6);
  int left = 0, joined = 0;
  constexpr int texts = 60'000;
  for (std::uint64_t text = 0; text < texts; ++text) {
    const std::size_t home = home_of(text, replicas);
    const std::size_t then = home_of(text, more);
    left += home == 4 ? 1 : 0;
    joined += then != home ? 1 : 0;
    ASSERT_TRUE(home == 4 || home_of(text, fewer) == home);
    ASSERT_TRUE(then == home || then == 5);
  }
  EXPECT_NEAR(left, texts / 5, 500);
  EXPECT_NEAR(joined, texts / 6, 500);
}

// How long to leave, how early to come.
TEST(Serving, HowLongToLeaveHowEarlyToCome) {
  const auto write = [](const char* name, double value) {
    write_value("serving-drain", name, value);
  };
  const double bytes = 8e9 * 2;
  const double threshold = 0.85 / std::pow(1.10, 3);
  write("seconds", 4096 * 0.020);
  write("load-8b", bytes / 1e9);
  write("load-seconds", bytes / 1.2e9);
  write("load-network", bytes / (1e9 / 8));
  write("threshold", 100 * threshold);
  write("spare-four", 100 * 0.85 * 3 / 4);
  write("spare-sixteen", 100 * 0.85 * 15 / 16);
  // Minute by minute: whoever asks at the threshold has the replica when the limit is reached, not later.
  double load = threshold;
  for (int minute = 0; minute < 3; ++minute) load *= 1.10;
  EXPECT_NEAR(load, 0.85, 1e-12);
}

}  // namespace
}  // namespace rose::labs
