// Tests of the chapter "Sampling".

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

#include <cmath>
#include <numeric>

#include "rose/core/error.h"
#include "rose/core/parallel.h"
#include "rose/core/rng.h"
#include "rose/infer/choose.h"
#include "rose/infer/grammar.h"
#include "rose/infer/sampling.h"

namespace rose::infer {
namespace {

// Name the field that is wrong.
std::string refused(const Sampling& s) {
  try {
    validate(s, 100);
  } catch (const core::Error& e) {
    EXPECT_EQ(e.code(), core::Code::invalid_argument);
    return e.argument();
  }
  return "";
}

TEST(Sampling, NamesTheFieldThatIsWrong) {
  EXPECT_EQ(refused({}), "");
  EXPECT_EQ(refused({.temperature = 0.0f, .top_p = 0.5f, .top_k = 3}), "");
  EXPECT_EQ(refused({.temperature = -1.0f}), "temperature");
  EXPECT_EQ(refused({.temperature = std::nanf("")}), "temperature");
  EXPECT_EQ(refused({.top_p = 0.0f}), "top_p");
  EXPECT_EQ(refused({.min_p = 1.5f}), "min_p");
  EXPECT_EQ(refused({.top_k = -1}), "top_k");
  EXPECT_EQ(refused({.repetition_penalty = 0.0f}), "repetition_penalty");
  EXPECT_EQ(refused({.presence_penalty = 2.5f}), "presence_penalty");
  EXPECT_EQ(refused({.frequency_penalty = std::nanf("")}), "frequency_penalty");
  EXPECT_EQ(refused({.logit_bias = {{100, 1.0f}}}), "logit_bias");
  EXPECT_EQ(refused({.logit_bias = {{3, 1.0f}, {3, 2.0f}}}), "logit_bias");
  EXPECT_EQ(refused({.n = 0}), "n");
  EXPECT_EQ(refused({.temperature = 0.0f, .n = 2}), "n");
  EXPECT_EQ(refused({.logprobs = 21}), "logprobs");
  EXPECT_EQ(refused({.processed_logprobs = true}), "processed_logprobs");
  EXPECT_EQ(refused({.max_tokens = -1}), "max_tokens");
  EXPECT_EQ(refused({.max_tokens = 2, .min_tokens = 3}), "min_tokens");
  EXPECT_EQ(refused({.stop = {"a", ""}}), "stop");
  EXPECT_EQ(refused({.stop = {"\xC3"}}), "stop");
  EXPECT_EQ(refused({.stop_token_ids = {-1}}), "stop_token_ids");
}

// Work the example, with and without drafts.
std::vector<float> adjusted(RequestSampler& sampler, std::int64_t position,
                            std::vector<std::int32_t> drafts = {}) {
  std::vector<float> logits(12, 4.0f);
  kernels::adjust_logits(logits, sampler.row(position, drafts).adjust);
  return logits;
}

TEST(RequestSampler, PenalisesWhatWasSaid) {
  const auto asked = std::make_shared<Sampling>(Sampling{.repetition_penalty = 2.0f,
                                                         .presence_penalty = 0.5f,
                                                         .frequency_penalty = 0.25f,
                                                         .max_tokens = 9,
                                                         .min_tokens = 4,
                                                         .stop_token_ids = {2}});
  RequestSampler sampler(asked, 0, std::vector<std::int32_t>{7, 8, 7}, 12,
                         std::vector<std::int32_t>{0});
  for (const std::int32_t token : {8, 9}) sampler.accept(token);
  const auto drafted = adjusted(sampler, 6, {9});
  sampler.accept(9);
  const auto z = adjusted(sampler, 6);
  EXPECT_EQ(z, drafted);
  EXPECT_EQ(z[7], 2.0f);
  EXPECT_EQ(z[8], 1.25f);
  EXPECT_EQ(z[9], 1.0f);
  EXPECT_EQ(z[3], 4.0f);
  EXPECT_TRUE(std::isinf(z[0]) && std::isinf(z[2]));  // three tokens are fewer than four
  EXPECT_EQ(adjusted(sampler, 7)[2], 4.0f);
  EXPECT_TRUE(sampler.needs_history());
}

// Four answers are four, and each repeats.
TEST(RequestSampler, GivesEveryChoiceItsOwnChance) {
  const auto one = std::make_shared<Sampling>(Sampling{.seed = 5});
  const auto four = std::make_shared<Sampling>(Sampling{.seed = 5, .n = 4});
  const std::vector<float> flat(1000, 0.0f);
  std::vector<std::pair<float, std::int32_t>> scratch;
  const auto draw = [&](const auto& asked, int choice) {
    RequestSampler sampler(asked, choice, {}, 1000, {});
    std::vector<std::int32_t> text;
    for (std::int64_t i = 0; i < 8; ++i)
      text.push_back(kernels::sample(flat, sampler.row(i).params, scratch).token);
    return text;
  };
  EXPECT_EQ(draw(one, 0), draw(four, 0));
  std::set<std::vector<std::int32_t>> texts;
  for (int c = 0; c < 4; ++c) {
    EXPECT_EQ(draw(four, c), draw(four, c));
    texts.insert(draw(four, c));
  }
  EXPECT_EQ(texts.size(), 4u);
}

// Obey a grammar, and let it end.
struct Alternating : Grammar {
  struct State : GrammarState {
    int taken = 0, most = 4;
    bool accept(std::int32_t token) override {
      if (must_end() || token != 1 + taken % 2) return false;
      return ++taken, true;
    }
    void mask(std::span<std::uint32_t> words) override {
      std::ranges::fill(words, 0u);
      if (!must_end()) words[0] = 2u << taken % 2;
    }
    bool can_end() const override { return taken % 2 == 0; }
    bool must_end() const override { return taken == most; }
    std::string forced() const override { return ""; }
    std::unique_ptr<GrammarState> clone() const override { return std::make_unique<State>(*this); }
  };
  std::unique_ptr<GrammarState> start() const override { return std::make_unique<State>(); }
};

TEST(RequestSampler, ObeysAGrammarAndLetsItEnd) {
  const auto asked = std::make_shared<Sampling>(
      Sampling{.max_tokens = 9, .min_tokens = 6, .grammar = std::make_shared<Alternating>()});
  RequestSampler sampler(asked, 0, {}, 12, std::vector<std::int32_t>{0});
  const auto allowed = [&](std::int64_t position, std::vector<std::int32_t> drafts = {}) {
    const auto z = adjusted(sampler, position, std::move(drafts));
    std::vector<std::int32_t> ids;
    for (std::size_t v = 0; v < z.size(); ++v)
      if (!std::isinf(z[v])) ids.push_back(static_cast<std::int32_t>(v));
    return ids;
  };
  using Ids = std::vector<std::int32_t>;
  EXPECT_EQ(allowed(0), (Ids{1}));
  EXPECT_EQ(allowed(1, {1}), (Ids{2}));
  EXPECT_EQ(allowed(1, {2}).size(), 11u);  // never accepted: unconstrained, but for the minimum
  for (const std::int32_t token : {1, 2, 1}) EXPECT_TRUE(sampler.accept(token));
  EXPECT_FALSE(sampler.accept(1));
  EXPECT_EQ(allowed(4, {2}), (Ids{0}));  // over: the end, although six tokens were asked for
}

// Report both probabilities of the example.
RowChoice choose_alone(std::vector<float> logits, RowSampling row, ChooseScratch& scratch) {
  return choose(logits, row, scratch, core::default_pool());
}

TEST(Choose, ReportsTheModelsViewAndTheDraws) {
  const std::vector<float> z{std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  ChooseScratch s;
  RowSampling row{.params = {.temperature = 1.0f, .top_p = 0.8f}, .logprobs = 3};
  const RowChoice raw = choose_alone(z, row, s);
  EXPECT_NEAR(raw.logprob, std::log(raw.token == 0 ? 0.5 : 0.3), 1e-6);
  EXPECT_NEAR(raw.top_logprobs[2], std::log(0.2), 1e-6);
  row.processed = true;
  const RowChoice drawn = choose_alone(z, row, s);
  EXPECT_NEAR(drawn.logprob, std::log(drawn.token == 0 ? 0.625 : 0.375), 1e-6);
  EXPECT_NEAR(drawn.top_logprobs[1], std::log(0.375), 1e-6);
  EXPECT_TRUE(std::isinf(drawn.top_logprobs[2]));
  EXPECT_EQ(std::vector<std::int32_t>(drawn.top_ids.begin(), drawn.top_ids.end()),
            (std::vector<std::int32_t>{0, 1, 2}));
  row.params.temperature = 0.0f;
  const RowChoice greedy = choose_alone(z, row, s);
  EXPECT_EQ(greedy.logprob, 0.0f);
  EXPECT_EQ(greedy.top_logprobs[0], 0.0f);
  EXPECT_TRUE(std::isinf(greedy.top_logprobs[1]));
  row.given = 2;
  EXPECT_NEAR(choose_alone(z, row, s).logprob, std::log(0.2), 1e-6);
  const std::vector<std::pair<std::int32_t, float>> bias{{2, 9.0f}};
  const RowChoice biased =
      choose_alone(z, {.params = {}, .adjust = {.bias = bias}, .logprobs = 1}, s);
  EXPECT_EQ(biased.token, 2);
  EXPECT_NEAR(biased.logprob, std::log(0.2), 1e-6);  // the model's, not the bias's
  EXPECT_EQ(biased.top_ids[0], 0);
  EXPECT_EQ(choose_alone({1.0f, std::nanf("")}, {.logprobs = 1}, s).token, -1);
}

// Compare thirty settings with the definition.
std::vector<double> defined(const std::vector<float>& z, const kernels::SamplingParams& p) {
  std::vector<std::size_t> order(z.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, [&](auto a, auto b) { return z[a] > z[b]; });
  if (p.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(p.top_k)));
  std::vector<double> weight(z.size());
  double all = 0, reached = 0, kept = 0;
  const auto w = [&](std::size_t v) {
    return std::exp((double{z[v]} - double{z[order[0]]}) / double{p.temperature});
  };
  for (const auto v : order) all += w(v);
  for (const auto v : order) {
    if (reached >= double{p.top_p} * all && p.top_p < 1.0f) break;
    reached += w(v);
    if (w(v) >= double{p.min_p}) kept += weight[v] = w(v);
  }
  for (double& x : weight) x /= kept;
  return weight;
}

TEST(Sampling, DrawsAsDefined) {
  core::Rng rng(3);
  ChooseScratch s;
  for (int setting = 0; setting < 30; ++setting) {
    std::vector<float> z(40);
    for (float& x : z) x = 2.0f * rng.normal();
    kernels::SamplingParams p{.temperature = 0.5f + rng.uniform(), .seed = rng.next64()};
    if (setting % 2 == 1) p.top_k = 1 + static_cast<int>(rng.below(20));
    if (setting % 3 == 1) p.top_p = 0.5f + 0.49f * rng.uniform();
    if (setting % 5 == 1) p.min_p = 0.1f * rng.uniform();
    const std::vector<double> expected = defined(z, p);
    constexpr int draws = 4000;
    std::vector<int> counts(z.size());
    for (int i = 0; i < draws; ++i) {
      p.position = static_cast<std::uint64_t>(i);
      ++counts[static_cast<std::size_t>(choose_alone(z, {.params = p}, s).token)];
    }
    double chi = 0, degrees = -1, rare = 0, rare_count = 0;
    for (std::size_t v = 0; v < z.size(); ++v) {
      if (expected[v] == 0.0) {
        ASSERT_EQ(counts[v], 0) << setting;
      }
      const double n = expected[v] * draws, d = counts[v] - n;
      if (n >= 5) {
        chi += d * d / n, degrees += 1;
      } else {
        rare += n, rare_count += counts[v];
      }
    }
    if (rare > 0) chi += (rare_count - rare) * (rare_count - rare) / rare, degrees += 1;
    EXPECT_LE(chi, degrees + 5 * std::sqrt(2 * degrees) + 5) << setting;
  }
}

}  // namespace
}  // namespace rose::infer
