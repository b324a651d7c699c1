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
#include <numeric>

#include "labs/evidence/values.h"
#include "labs/inference/routing.h"
#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/serve/replicas.h"

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

}  // namespace
}  // namespace rose::labs

namespace rose::serve {
namespace {

// A conversation stays at home, unless home is full or gone.
class Held final : public Backend {
 public:
  std::vector<Listener> listeners;
  std::vector<Number> cancelled;
  bool up = true;
  Number submit(Question, Listener listener) override {
    listeners.push_back(std::move(listener));
    return listeners.size();
  }
  void cancel(Number number) override { cancelled.push_back(number); }
  std::optional<EngineFacts> facts() const override {
    EngineFacts facts;
    facts.pages = 10;
    return up ? std::optional(facts) : std::nullopt;
  }
  infer::Statistics statistics() const override {
    infer::Statistics s;
    s.steps = 1;
    return s;
  }
  void look(Looker told) override { told(std::vector<infer::EngineView>(up ? 1 : 0)); }
  void finish() {
    const infer::Event end{.finish = infer::Finish::stop};
    for (const Listener& listener : listeners)
      listener({.kind = Notice::Kind::event, .event = &end});
    listeners.clear();
  }
};

Question conversation(std::int32_t who, int turns) {
  Question q;
  for (int t = 0; t < turns; ++t)
    for (std::int32_t i = 0; i < 40; ++i) q.prompt.push_back(who * 1000 + t * 40 + i);
  return q;
}

// Where questions go.
class Replicas : public ::testing::Test {
 protected:
  Replicas() {
    std::vector<std::unique_ptr<Backend>> all;
    for (int i = 0; i < 3; ++i) {
      auto one = std::make_unique<Held>();
      held.push_back(one.get());
      all.push_back(std::move(one));
    }
    backend = std::make_unique<ReplicaBackend>(std::move(all));
  }
  std::size_t ask(const Question& q) {  // which replica has it
    last = backend->submit(q, [](const Notice&) {});
    return last % 3;
  }
  std::vector<Held*> held;
  std::unique_ptr<ReplicaBackend> backend;
  Backend::Number last = 0;
};

TEST_F(Replicas, AConversationStaysAtHome) {
  std::array<std::size_t, 30> homes{};
  std::array<int, 3> share{};
  for (std::int32_t who = 0; who < 30; ++who)
    ++share[homes[static_cast<std::size_t>(who)] = ask(conversation(who, 1))];
  EXPECT_EQ(share, (std::array{10, 10, 10}));
  for (Held* h : held) h->finish();
  EXPECT_EQ(backend->open(), (std::vector{0, 0, 0}));
  for (int turn = 2; turn < 5; ++turn)
    for (std::int32_t who = 29; who >= 0; --who) {
      EXPECT_EQ(ask(conversation(who, turn)), homes[static_cast<std::size_t>(who)]);
      held[homes[static_cast<std::size_t>(who)]]->finish();
    }
  Question salted = conversation(3, 4);
  salted.salt = "somebody else";
  EXPECT_FALSE(PrefixRoutes().home(salted));
  backend->cancel(last);
  EXPECT_EQ(held[homes[0]]->cancelled.size(), 1u);
}

TEST_F(Replicas, AFullHomeIsLeftAndADeadOne) {
  std::array<int, 3> share{};
  for (int i = 0; i < 60; ++i) ++share[ask(conversation(1, 2))];  // everybody asks about one text
  for (const int n : share) EXPECT_NEAR(n, 20, 6) << "no more than 1.25 times the mean";
  held[0]->up = false;
  const core::Error gone(core::Code::io, "signal 9");
  for (const auto& listener : held[0]->listeners)
    listener({.kind = Notice::Kind::lost, .error = &gone});
  EXPECT_EQ(backend->open()[0], 0);
  EXPECT_EQ(backend->ready(), 2u);
  for (std::int32_t who = 0; who < 20; ++who) EXPECT_NE(ask(conversation(who, 3)), 0u);
  EXPECT_EQ(backend->facts()->pages, 20);
  EXPECT_EQ(backend->statistics().steps, 3);
  std::size_t seen = 0;
  backend->look([&](const std::vector<infer::EngineView>& views) { seen = views.size(); });
  EXPECT_EQ(seen, 2u);
  for (Held* h : held) h->up = false;
  EXPECT_FALSE(backend->facts()) << "then the front is not healthy";
}

TEST(PrefixRoutes, ForgetsWhatWasNotSeenForLongest) {
  PrefixRoutes routes(8);
  for (std::int32_t who = 0; who < 20; ++who) routes.remember(conversation(who, 3), 1);
  EXPECT_EQ(routes.size(), 8u);
  EXPECT_TRUE(routes.home(conversation(19, 3)));
  EXPECT_FALSE(routes.home(conversation(2, 3)));
}

}  // namespace
}  // namespace rose::serve

namespace rose::labs {
namespace {

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
