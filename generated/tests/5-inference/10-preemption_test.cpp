// Tests of the chapter "Preemption and memory pressure".

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

#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/infer/scheduler.h"

namespace rose::infer {
namespace {

// Compare moving with computing.
TEST(Preemption, MovingOrComputing) {
  const auto swap = [](double bytes) { return 2.0 * bytes / 50e9 * 1e6; };
  const auto recompute = [](double parameters) { return 2.0 * parameters / 700e12 * 1e6; };
  EXPECT_NEAR(swap(114'688), 4.6, 0.05);
  EXPECT_NEAR(recompute(0.6e9), 1.7, 0.05);
  EXPECT_NEAR(swap(131'072), 5.2, 0.05);
  EXPECT_NEAR(recompute(8e9), 22.9, 0.05);
}

// B loses its pages, keeps its tokens, and comes back.
TEST(Preemption, TheLastToArriveLosesItsPagesAndKeepsItsTokens) {
  KvPool pool(6);
  PrefixCache cache(pool, 4);
  Scheduler scheduler({.tokens = 64, .sequences = 4, .rows = 4, .page_size = 4}, pool, cache);
  Sequence a, b;
  a.tokens = {1, 2, 3, 4, 5, 6, 7}, b.tokens = {11, 12, 13, 14, 15, 16};
  for (Sequence* s : {&a, &b}) {
    s->prompt = static_cast<std::int64_t>(s->tokens.size());
    s->limit = 40;
    s->number = s == &a ? 0 : 1;
    s->root = cache.root(1, "", "");
    scheduler.add(*s);
  }
  StepPlan plan;
  std::vector<kernels::KvPageCopy> copies;
  const auto step = [&] {
    scheduler.plan(plan);
    scheduler.apply(plan, copies);
    scheduler.complete(plan.rows);
    for (const PlannedRow& row : plan.rows) {
      const auto token = static_cast<std::int32_t>(100 + row.first);
      scheduler.extend(row, std::span(&token, 1));
    }
    pool.check();
  };
  for (int i = 0; i < 3; ++i) step();
  EXPECT_EQ(pool.counts().free, 0);
  EXPECT_EQ(b.pages.size(), 2u);
  step();
  EXPECT_EQ(plan.preempted, std::vector<Sequence*>{&b});
  EXPECT_EQ(b.tokens.size(), 9u);
  EXPECT_EQ(b.pending(), 9);
  EXPECT_EQ(pool.counts().cached, 2);
  for (int i = 0; i < 4; ++i) step();
  EXPECT_EQ(a.tokens.size(), 15u);
  EXPECT_EQ(pool.counts().cached, 1) << "A took the end of B";
  EXPECT_EQ(b.state, Sequence::State::waiting);
  scheduler.remove(a);
  step();
  EXPECT_EQ(plan.rows.at(0).first, 4) << "the first page was still known";
  EXPECT_EQ(plan.rows.at(0).count, 5);
  EXPECT_EQ(b.preemptions, 1);
  EXPECT_EQ(b.tokens.size(), 10u);
}

// Name the one that can never run.
TEST(Preemption, ARequestThatOutgrowsThePoolIsNamed) {
  KvPool pool(3);
  PrefixCache cache(pool, 4);
  Scheduler scheduler({.tokens = 64, .sequences = 4, .rows = 4, .page_size = 4}, pool, cache);
  EXPECT_TRUE(scheduler.fits(8));
  EXPECT_FALSE(scheduler.fits(9));
  Sequence s;
  s.tokens = {1, 2, 3};
  s.prompt = 3, s.limit = 100;
  scheduler.add(s);
  StepPlan plan;
  std::vector<kernels::KvPageCopy> copies;
  for (int i = 0; i < 20 && plan.impossible == nullptr; ++i) {
    scheduler.plan(plan);
    if (plan.rows.empty()) break;
    scheduler.apply(plan, copies);
    scheduler.complete(plan.rows);
    const std::int32_t token = 5;
    scheduler.extend(plan.rows.at(0), std::span(&token, 1));
  }
  EXPECT_EQ(plan.impossible, &s);
  EXPECT_EQ(s.tokens.size(), 9u);
  scheduler.remove(s);
  EXPECT_EQ(pool.available(), pool.usable());
}

}  // namespace
}  // namespace rose::infer
