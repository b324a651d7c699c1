// Tests of the chapter "First words".

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

#include "labs/counting/allocations.h"
#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/kernels/elementary.h"
#include "rose/model/generate.h"
#include "rose/model/sample.h"

namespace rose::model {
namespace {

// Work the example, then count twenty thousand draws.
std::vector<double> frequencies(const std::vector<float>& logits, Sampling sampling,
                                int draws = 20'000) {
  Sampler sampler;
  std::vector<double> share(logits.size());
  for (int i = 0; i < draws; ++i)
    share[static_cast<std::size_t>(sampler.choose(logits, sampling, i))] += 1.0 / draws;
  return share;
}

TEST(Sampler, FollowsTheDistributionThatItsSettingsLeave) {
  const std::vector<float> logits{std::log(3.0f), std::log(1.0f), std::log(4.0f), std::log(2.0f)};
  const auto expect = [&](Sampling s, std::vector<double> parts) {
    s.seed = 5;
    const double total = std::accumulate(parts.begin(), parts.end(), 0.0);
    const std::vector<double> share = frequencies(logits, s);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      EXPECT_NEAR(share[i], parts[i] / total, parts[i] == 0.0 ? 0.0 : 0.015)
          << i;  // four standard errors
    }
  };
  expect({.temperature = 1.0f}, {3, 1, 4, 2});
  expect({.temperature = 0.5f}, {9, 1, 16, 4});
  expect({.temperature = 1.0f, .top_k = 2}, {3, 0, 4, 0});
  expect({.temperature = 1.0f, .top_p = 0.75f}, {3, 0, 4, 2});
  expect({.temperature = 1.0f, .top_p = 0.69f}, {3, 0, 4, 0});
  expect({.temperature = 1.0f, .min_p = 0.45f}, {3, 0, 4, 2});
  expect({.temperature = 1.0f, .top_k = 3, .top_p = 0.5f},
         {3, 0, 4, 0});  // of the three that are left, 4/9 is not half
  expect({.temperature = 1.0f, .top_k = 2, .top_p = 0.55f},
         {0, 0, 1, 0});  // 4/7 of two are enough; top-p first would keep 4 and 3, and top-k both
  expect({.temperature = 1.0f, .top_p = 1e-6f}, {0, 0, 1, 0});
  expect({.temperature = 1e-6f}, {0, 0, 1, 0});
}

TEST(Sampler, GreedyTakesTheFirstOfEqualsAndSeedsRepeat) {
  Sampler sampler;
  EXPECT_EQ(sampler.choose(std::vector<float>{1.0f, 3.0f, 3.0f}, {}, 0), 1);
  const std::vector<float> flat(100, 0.0f);
  std::set<std::int32_t> seen;
  for (std::int64_t position = 0; position < 50; ++position) {
    const Sampling s{.temperature = 1.0f, .seed = 9};
    const std::int32_t id = sampler.choose(flat, s, position);
    EXPECT_EQ(Sampler().choose(flat, s, position), id);
    seen.insert(id);
  }
  EXPECT_GT(seen.size(), 25u);
  EXPECT_THROW(sampler.choose(std::vector<float>{1.0f, std::nanf("")}, {}, 0), core::Error);
  EXPECT_THROW(validate({.temperature = -1.0f}), core::Error);
  EXPECT_THROW(validate({.top_p = 0.0f}), core::Error);
}

// What the bound says of SmolLM2.
TEST(Bound, WritingIsReading) {
  const double weights = 135e6 * 5 / 8, position = 2 * 30 * 3 * 64 * 4, rate = 20e9;
  EXPECT_EQ(position, 46'080);
  EXPECT_NEAR(rate / weights, 237, 1);
  EXPECT_NEAR(rate / (weights + 2000 * position), 113, 1);
  EXPECT_NEAR(weights / position, 1831, 1);  // where the two are equal
  EXPECT_NEAR(8 * rate / (weights + 8 * 2000 * position), 194,
              1);  // eight at once share the weights
}

// Generate as the slow way does, stop where told, reuse what is known.
std::shared_ptr<WeightSet> little(std::uint64_t seed = 3) {
  Config c;
  c.vocab_size = 61, c.layers = 2, c.heads = 4, c.kv_heads = 2, c.head_dim = 8, c.hidden = 32,
  c.ffn = 48, c.max_positions = 400;
  auto weights = random_weights(c, seed);
  for (const Parameter& p : weights->parameters()) {
    for (float& x : p.f32()) x *= p.shape.size() == 2 ? 8.0f : 1.0f;
  }
  return weights;
}

std::vector<std::int32_t> slow_way(const WeightSet& weights, std::vector<std::int32_t> ids,
                                   std::size_t n, const Sampling& sampling) {
  Workspace ws(weights.config());
  std::vector<std::int32_t> made;
  Sampler sampler;
  while (made.size() < n) {
    std::vector<std::int32_t> positions(ids.size());
    std::iota(positions.begin(), positions.end(), 0);
    std::vector<float> hidden(ids.size() * 32), row(61);
    forward(weights,
            {ids, positions, std::vector<std::int32_t>{0, static_cast<std::int32_t>(ids.size())}},
            nullptr, nullptr, ws, hidden);
    logits(weights, std::span(hidden).last(32), 1, ws, row);
    ids.push_back(sampler.choose(row, sampling, static_cast<std::int64_t>(ids.size())));
    made.push_back(ids.back());
  }
  return made;
}

// Generate as the slow way does, and reuse what is known.
TEST(Generator, AgreesWithTheSlowWayAndReusesWhatItKnows) {
  const auto weights = little();
  std::vector<std::int32_t> prompt(300);
  core::Rng rng(8);
  for (auto& id : prompt) id = static_cast<std::int32_t>(rng.below(61));
  for (const Sampling& sampling :
       {Sampling{}, Sampling{.temperature = 0.9f, .top_k = 20, .top_p = 0.95f, .seed = 4}}) {
    Generator generator(weights);
    std::vector<std::int32_t> streamed;
    const Generation made =
        generator.generate(prompt, {.max_tokens = 24, .sampling = sampling}, [&](std::int32_t id) {
          streamed.push_back(id);
          return true;
        });
    EXPECT_EQ(made.ids, slow_way(*weights, prompt, 24, sampling));
    EXPECT_EQ(streamed, made.ids);
    EXPECT_EQ(made.finish, Finish::length);
    EXPECT_EQ(made.reused_tokens, 0);
    EXPECT_GT(std::set<std::int32_t>(made.ids.begin(), made.ids.end()).size(), 3u)
        << "too monotonous to test anything";

    std::vector<std::int32_t> longer = prompt;  // the conversation goes on
    longer.insert(longer.end(), made.ids.begin(), made.ids.end());
    longer.push_back(7);
    const Generation second = generator.generate(longer, {.max_tokens = 5, .sampling = sampling});
    EXPECT_EQ(second.reused_tokens,
              323);  // the prompt and the tokens that were fed back: all but the last
    EXPECT_EQ(second.ids, slow_way(*weights, longer, 5, sampling));
    EXPECT_EQ(generator.generate(prompt, {.max_tokens = 24, .sampling = sampling}).ids, made.ids);
  }
}

// End for the right reason.
TEST(Generator, EndsForTheRightReason) {
  const auto weights = little();
  const std::vector<std::int32_t> prompt{5, 6, 7};
  Generator generator(weights, 20);
  const std::vector<std::int32_t> all = generator.generate(prompt, {.max_tokens = 10}).ids;
  const auto stop = generator.generate(prompt, {.max_tokens = 10, .stop_ids = {all[4]}});
  EXPECT_EQ(stop.finish, Finish::stop);
  EXPECT_LE(stop.ids.size(), 4u);
  EXPECT_TRUE(std::ranges::equal(
      stop.ids, std::span(all).first(stop.ids.size())));  // the stop id is not part of the text
  const auto full = generator.generate(prompt, {.max_tokens = 100});
  EXPECT_EQ(full.finish, Finish::context);
  EXPECT_EQ(full.ids.size(), 18u);  // 17 fit after the prompt; the last one need not be fed back
  const auto cut =
      generator.generate(prompt, {.max_tokens = 10}, [](std::int32_t) { return false; });
  EXPECT_EQ(cut.finish, Finish::cancelled);
  EXPECT_EQ(cut.ids.size(), 1u);

  const auto complaint = [&](std::vector<std::int32_t> ids, GenerateOptions options = {}) {
    try {
      generator.generate(ids, options);
    } catch (const core::Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(complaint({}), testing::HasSubstr("nothing to continue"));
  EXPECT_THAT(complaint(std::vector<std::int32_t>(21, 1)),
              testing::HasSubstr("the prompt has 21 tokens, the context holds 20"));
  EXPECT_THAT(complaint({1, 61}), testing::HasSubstr("token id 61 is outside [0, 61)"));
  EXPECT_THAT(complaint({1}, {.max_tokens = 0}), testing::HasSubstr("max_tokens"));
  EXPECT_EQ(generator.generate(prompt, {.max_tokens = 10}).ids,
            all);  // and an error leaves it usable
  EXPECT_THROW(Generator(weights, 401), core::Error);
}

// A longer answer allocates no more than a short one.
TEST(Generator, AllocatesNothingPerToken) {
  using labs::allocations;
  const auto weights = little();
  Generator generator(weights);
  const std::vector<std::int32_t> prompt{5, 6, 7};
  for (const Sampling& sampling : {Sampling{}, Sampling{.temperature = 1.0f, .top_p = 0.9f}}) {
    const auto count = [&](std::int64_t n) {
      const std::int64_t before = allocations;
      generator.generate(prompt, {.max_tokens = n, .sampling = sampling});
      return allocations - before;
    };
    count(4);
    EXPECT_EQ(count(36), count(4));
  }
}

}  // namespace
}  // namespace rose::model
