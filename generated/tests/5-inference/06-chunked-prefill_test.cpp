// Tests of the chapter "Chunked prefill and the token budget".

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

// Turn the dial.
TEST(TokenBudget, IsTheDialBetweenTwoLatencies) {
  const auto schedule = [](int prompt, int answers, int budget) {
    const int piece = budget - answers, steps = (prompt + piece - 1) / piece;
    const double longest = std::max(4.0, 0.02 * std::min(piece, prompt));
    return std::pair(steps, longest);
  };
  EXPECT_EQ(schedule(8000, 100, 8100), std::pair(1, 160.0));
  EXPECT_EQ(schedule(8000, 100, 512).first, 20);
  EXPECT_NEAR(schedule(8000, 100, 512).second, 8.24, 1e-9);
  EXPECT_EQ(schedule(8000, 100, 300), std::pair(40, 4.0));
}

// A toy model whose keys are hashes of the text.
struct Toy {
  static constexpr int page_size = 4;
  struct Answer {
    Sequence sequence;
    std::uint64_t seed = 0;
    std::int32_t promised = -1;  // what the last launch chose
    bool done = false;
  };
  struct Launch {
    std::vector<PlannedRow> rows;
    std::vector<std::vector<std::int32_t>> pages, chosen;
    std::vector<kernels::KvPageCopy> copies;
  };

  static std::uint64_t mix(std::uint64_t h, std::int32_t token) {
    h = (h ^ static_cast<std::uint64_t>(token + 1)) * 0x9E3779B97F4A7C15u;
    return h ^ (h >> 29);
  }
  static std::int32_t next(std::uint64_t text, std::uint64_t seed) {
    return static_cast<std::int32_t>(mix(text ^ seed, 77) % 7);  // 0 ends the answer
  }

  Toy(std::int64_t pages, SchedulerLimits limits, bool overlap, std::uint64_t seed)
      : pool(pages),
        cache(pool, page_size),
        scheduler(limits, pool, cache),
        depth(overlap ? 2 : 1),
        slots(static_cast<std::size_t>(pages * page_size)),
        rng(seed) {}

  std::uint64_t& slot(const std::vector<std::int32_t>& pages, std::int64_t p) {
    return slots[static_cast<std::size_t>(
        pages[static_cast<std::size_t>(p / page_size)] * page_size + p % page_size)];
  }

  KvPool pool;
  PrefixCache cache;
  Scheduler scheduler;
  std::size_t depth;
  std::vector<std::uint64_t> slots;
  core::Rng rng;
  std::vector<std::unique_ptr<Answer>> answers;
  std::map<const Sequence*, Answer*> owner;
  std::deque<Launch> launches;
  std::uint64_t numbers = 0;
  std::int64_t finished = 0, cancelled = 0, impossible = 0, preempted = 0, forked = 0, guessed = 0;
  StepPlan plan;
};

// Execute a step, and look at every key.
void execute(Toy& toy, Toy::Launch& launch) {
  for (const auto& copy : launch.copies) {
    for (int i = 0; i < Toy::page_size; ++i)
      toy.slots[static_cast<std::size_t>(copy.to * Toy::page_size + i)] =
          toy.slots[static_cast<std::size_t>(copy.from * Toy::page_size + i)];
  }
  for (std::size_t r = 0; r < launch.rows.size(); ++r) {
    const PlannedRow& row = launch.rows[r];
    Toy::Answer& answer = *toy.owner.at(row.sequence);
    const Sequence& s = *row.sequence;
    const auto& pages = launch.pages[r];
    for (const std::int32_t page : pages) {
      const PageState state = toy.pool.state(page);
      ASSERT_TRUE(state == PageState::referenced || state == PageState::in_flight);
    }
    std::uint64_t text = 0;
    std::vector<std::int32_t>& chosen = launch.chosen[r];
    for (std::int64_t p = 0; p < row.first + row.count; ++p) {
      const auto i = static_cast<std::size_t>(p);
      const bool known = i < s.tokens.size(), guess = p >= row.first + row.count - row.drafts;
      const std::int32_t token = known   ? s.tokens[i]
                                 : guess ? s.drafts[i - s.tokens.size()]
                                         : answer.promised;
      ASSERT_GE(token, 0);
      text = Toy::mix(text, token);
      if (p < row.first) {
        ASSERT_EQ(toy.slot(pages, p), text) << "position " << p << " of answer " << s.number;
      } else {
        ASSERT_TRUE(s.state != Sequence::State::running ||
                    toy.pool.writable(pages[i / Toy::page_size]));
        toy.slot(pages, p) = text;
      }
      if (p < row.first + row.count - std::max(row.choices - (s.seats > 1 ? s.seats - 1 : 0), 0))
        continue;
      for (int seat = 0; seat < (s.seats > 1 ? row.choices : 1); ++seat)
        chosen.push_back(Toy::next(text, answer.seed + static_cast<std::uint64_t>(seat)));
    }
    if (!chosen.empty()) answer.promised = chosen[0];
  }
}

// Complete a step, fork, and check what is finished.
void finish(Toy& toy, Toy::Answer& answer, bool check) {
  toy.scheduler.remove(answer.sequence);
  answer.done = true;
  const Sequence& s = answer.sequence;
  std::uint64_t text = 0;
  for (std::size_t i = 0; check && i < s.tokens.size(); ++i) {
    if (static_cast<std::int64_t>(i) >= s.prompt) {
      ASSERT_EQ(s.tokens[i], Toy::next(text, answer.seed));
    }
    text = Toy::mix(text, s.tokens[i]);
  }
}

void end_if_over(Toy& toy, Toy::Answer& answer) {
  Sequence& s = answer.sequence;
  const auto stop = std::ranges::find(s.tokens.begin() + s.prompt, s.tokens.end(), 0);
  const bool stopped = stop != s.tokens.end();
  if (stopped) s.tokens.erase(stop + 1, s.tokens.end());
  if (!stopped && static_cast<std::int64_t>(s.tokens.size()) < s.limit) return;
  finish(toy, answer, true);
  ++toy.finished;
}

void complete(Toy& toy) {
  Toy::Launch launch = std::move(toy.launches.front());
  toy.launches.pop_front();
  execute(toy, launch);
  toy.scheduler.complete(launch.rows);
  for (std::size_t r = 0; r < launch.rows.size(); ++r) {
    const PlannedRow& row = launch.rows[r];
    Toy::Answer& answer = *toy.owner.at(row.sequence);
    Sequence& s = answer.sequence;
    if (answer.done || row.choices == 0) continue;
    const int seats = s.seats;
    const auto chosen = std::span<const std::int32_t>(launch.chosen[r]);
    ASSERT_EQ(chosen.size(), static_cast<std::size_t>(row.choices));
    toy.scheduler.extend(row, seats > 1 ? chosen.first(1) : chosen);
    for (int seat = 1; seat < seats; ++seat, ++toy.forked) {
      auto twin = std::make_unique<Toy::Answer>();
      twin->seed = answer.seed + static_cast<std::uint64_t>(seat);
      twin->sequence.number = toy.numbers++;
      twin->sequence.limit = s.limit;
      toy.scheduler.fork(s, twin->sequence, chosen[static_cast<std::size_t>(seat)]);
      toy.owner[&twin->sequence] = twin.get();
      end_if_over(toy, *toy.answers.emplace_back(std::move(twin)));
    }
    end_if_over(toy, answer);
  }
}

// Things that people do.
void submit(Toy& toy) {
  auto answer = std::make_unique<Toy::Answer>();
  Sequence& s = answer->sequence;
  s.number = toy.numbers++;
  answer->seed = toy.rng.next64();
  s.priority = static_cast<int>(toy.rng.below(3));
  const std::uint32_t theme = toy.rng.below(3), length = 1 + toy.rng.below(30),
                      shared = toy.rng.below(30);
  for (std::uint32_t i = 0; i < length; ++i)
    s.tokens.push_back(
        static_cast<std::int32_t>(i < shared ? 1 + (theme * 5 + i) % 6 : 1 + toy.rng.below(6)));
  s.prompt = length;
  s.limit = length + 1 + toy.rng.below(16);
  s.seats = toy.rng.below(8) == 0 ? 3 : 1;
  s.lockstep = s.seats == 1 && toy.rng.below(4) == 0;
  s.root = toy.cache.root(1, "", theme == 2 ? "salt" : "");
  toy.owner[&s] = answer.get();
  toy.scheduler.add(s);
  toy.answers.push_back(std::move(answer));
}

void guess(Toy& toy) {
  for (Sequence* s : toy.scheduler.running()) {
    if (!s->lockstep || s->awaited > 0 || s->pending() != 1) continue;
    s->drafts.clear();
    std::uint64_t text = 0;
    for (const std::int32_t token : s->tokens) text = Toy::mix(text, token);
    const auto room =
        static_cast<std::uint32_t>(std::min<std::int64_t>(3, s->limit - s->known() - 1));
    for (std::uint32_t i = room > 0 ? toy.rng.below(room + 1) : 0; i > 0; --i, ++toy.guessed) {
      const bool right = toy.rng.below(3) > 0;
      s->drafts.push_back(right ? Toy::next(text, toy.owner.at(s)->seed)
                                : static_cast<std::int32_t>(toy.rng.below(7)));
      text = Toy::mix(text, s->drafts.back());
    }
  }
}

void cancel(Toy& toy) {
  if (toy.answers.empty()) return;
  Toy::Answer& answer = *toy.answers[toy.rng.below(static_cast<std::uint32_t>(toy.answers.size()))];
  if (answer.done) return;
  finish(toy, answer, false);
  ++toy.cancelled;
}

// Take one step of the world.
void step(Toy& toy) {
  if (toy.answers.size() < 14 && toy.rng.below(3) == 0) submit(toy);
  if (toy.rng.below(40) == 0) cancel(toy);
  guess(toy);
  toy.scheduler.plan(toy.plan);
  while ((toy.plan.short_of_pages || toy.plan.rows.empty()) && !toy.launches.empty()) {
    complete(toy);
    toy.scheduler.plan(toy.plan);
  }
  ASSERT_FALSE(toy.plan.short_of_pages) << "nothing is in flight, and pages are awaited";
  if (Sequence* s = toy.plan.impossible) {
    finish(toy, *toy.owner.at(s), false);
    ++toy.impossible;
    return;
  }
  if (toy.plan.rows.empty() && toy.plan.preempted.empty()) {
    ASSERT_TRUE(toy.scheduler.waiting().empty() && toy.scheduler.running().empty())
        << "no progress";
    return;
  }
  const SchedulerLimits& limits = toy.scheduler.limits();
  ASSERT_LE(toy.plan.tokens, limits.tokens);
  ASSERT_LE(toy.plan.logits, limits.rows);
  Toy::Launch launch{toy.plan.rows, {}, {}, {}};
  toy.preempted += static_cast<std::int64_t>(toy.plan.preempted.size());
  toy.scheduler.apply(toy.plan, launch.copies);
  ASSERT_LE(toy.scheduler.seats(), limits.sequences);
  for (const PlannedRow& row : launch.rows) launch.pages.push_back(row.sequence->pages);
  if (launch.rows.empty()) return;  // somebody has lost its pages, and nothing more
  launch.chosen.resize(launch.rows.size());
  toy.launches.push_back(std::move(launch));
  while (toy.launches.size() >= toy.depth) complete(toy);
  toy.pool.check();
  std::erase_if(toy.answers, [&](const auto& answer) {
    const bool gone = answer->done && answer->sequence.in_flight == 0;
    if (gone) toy.owner.erase(&answer->sequence);
    return gone;
  });
}

// A million random steps lose no page and no token.
TEST(Scheduler, RandomStepsLoseNoPageAndNoToken) {
  constexpr int steps_each = 62'500;
  Toy total(2, {}, false, 0);
  std::uint64_t seed = 0;
  for (const auto policy : {AdmissionPolicy::fifo, AdmissionPolicy::pack, AdmissionPolicy::priority,
                            AdmissionPolicy::shortest}) {
    for (const std::int64_t pages : {14, 60}) {
      for (const bool overlap : {false, true}) {
        SchedulerLimits limits{.tokens = pages == 14 ? 9 : 40,
                               .sequences = 6,
                               .rows = 8,
                               .page_size = Toy::page_size,
                               .policy = policy,
                               .look_ahead = 4,
                               .patience = 5};
        limits.chunk = overlap ? 3 : 0;
        Toy toy(pages, limits, overlap, ++seed);
        for (int i = 0; i < steps_each && !testing::Test::HasFatalFailure(); ++i) step(toy);
        ASSERT_FALSE(testing::Test::HasFatalFailure()) << "world " << seed;
        while (!toy.launches.empty()) complete(toy);
        for (const auto& answer : toy.answers)
          if (!answer->done) finish(toy, *answer, false);
        toy.pool.check();
        EXPECT_EQ(toy.pool.available(), toy.pool.usable()) << "after everyone has left";
        total.finished += toy.finished, total.cancelled += toy.cancelled,
            total.forked += toy.forked;
        total.impossible += toy.impossible, total.preempted += toy.preempted,
            total.guessed += toy.guessed;
        total.numbers += static_cast<std::uint64_t>(toy.cache.statistics().tokens_found);
      }
    }
  }
  EXPECT_GT(
      std::min({total.finished, total.cancelled, total.forked, total.guessed, total.preempted}),
      500)
      << "the worlds were too quiet to test anything";
  EXPECT_GT(total.numbers, 5'000u) << "tokens found in the prefix cache";
}

}  // namespace
}  // namespace rose::infer
