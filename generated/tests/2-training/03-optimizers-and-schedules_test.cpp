// Tests of the chapter "Optimizers and schedules".

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

#include <ATen/ATen.h>

#include "labs/evidence/values.h"
#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/trainer/adamw.h"
#include "rose/trainer/optimizer.h"
#include "rose/trainer/rate_schedule.h"
#include "rose/trainer/schedule.h"
#include "rose/trainer/spikes.h"

namespace rose::trainer {
namespace {

// Every parameter has the rule of its kind, and AdamW the bits of the first run.
model::Config gpt2_config() {
  model::Config c;
  c.family = model::Family::gpt2;
  c.norm = model::NormKind::layernorm, c.activation = model::Activation::gelu_tanh;
  c.vocab_size = 40, c.layers = 2, c.heads = c.kv_heads = 4, c.head_dim = 8, c.hidden = 32,
  c.ffn = 48, c.max_positions = 64;
  c.tied_head = c.qkv_bias = c.o_bias = c.mlp_bias = true;
  return c;
}

TEST(Optimizer, EveryParameterHasTheRuleOfItsKind) {
  const auto weights = model::random_weights(gpt2_config(), 3);
  OptimizerOptions options{.method = Method::muon, .decay_embeddings = false, .muon_rate = 2.0};
  options.frozen = {"layers.1.ffn"};
  const auto rules = parameter_rules(weights->parameters(), options);
  std::map<std::string, ParameterRule> by_name;
  for (std::size_t p = 0; p < rules.size(); ++p) by_name[weights->parameters()[p].name] = rules[p];
  const auto& matrix = by_name.at("layers.0.attn.q.weight");
  EXPECT_EQ(matrix.method, Method::muon);
  EXPECT_EQ(matrix.decay, 0.1f);
  EXPECT_EQ(matrix.rate, 2.0);
  EXPECT_FLOAT_EQ(matrix.muon_scale, 0.2f * std::sqrt(32.0f));
  for (const char* other : {"embed.weight", "pos_embed.weight", "norm.weight", "norm.bias",
                            "layers.0.attn_norm.bias", "layers.0.attn.q.bias"}) {
    EXPECT_EQ(by_name.at(other).method, Method::adamw) << other;
    EXPECT_EQ(by_name.at(other).decay, 0.0f) << other;
    EXPECT_TRUE(by_name.at(other).trained) << other;
  }
  EXPECT_FALSE(by_name.at("layers.1.ffn.up.weight").trained);
  EXPECT_TRUE(by_name.at("layers.1.ffn_norm.weight").trained == false);
}

TEST(Optimizer, AdamWHasTheBitsOfTheFirstRun) {
  core::ThreadPool pool(2);
  const auto ours = model::random_weights(gpt2_config(), 3),
             theirs = model::random_weights(gpt2_config(), 3);
  OptimizerOptions options;
  HostOptimizer host(*ours, options);
  AdamW first(*theirs, {.beta2 = 0.95f});
  model::Gradients gradients(*ours);
  core::Rng rng(5);
  for (std::int64_t t = 1; t <= 5; ++t) {
    for (float& g : gradients.all()) g = rng.normal();
    host.step(*ours, gradients, t, 0.01, 0.5f, pool);
    first.step(*theirs, gradients, 0.01f, 0.5f, pool);
  }
  for (std::size_t p = 0; p < ours->parameters().size(); ++p) {
    const auto a = ours->parameters()[p].f32(), b = theirs->parameters()[p].f32();
    EXPECT_TRUE(std::ranges::equal(a, b)) << ours->parameters()[p].name;
  }
}

TEST(Optimizer, AnOptionOutOfRangeIsNamed) {
  const auto weights = model::random_weights(gpt2_config(), 3);
  try {
    parameter_rules(weights->parameters(), {.beta2 = 1.0f});
    FAIL();
  } catch (const core::Error& error) {
    EXPECT_EQ(error.argument(), "optimizer.beta2");
  }
}

// Decay and updates balance where the formula says.
TEST(Optimizer, DecayAndUpdatesBalance) {
  const double eta = 0.01, lambda = 0.5, rho = 0.3;
  core::Rng rng(7);
  double sum = 0;
  int n = 0;
  for (int path = 0; path < 200; ++path) {
    double theta = 3;  // far from where it will be
    for (int t = 0; t < 4000; ++t) {
      theta = (1 - eta * lambda) * theta - eta * rho * static_cast<double>(rng.normal());
      if (t >= 2000 && t % 200 == 0)
        sum += theta * theta, ++n;  // 10 memories after the start, one apart
    }
  }
  const double expected = rho * std::sqrt(eta / (2 * lambda));
  // 2,000 nearly independent squares: their mean's relative standard error is sqrt(2 / 2000) = 3 %, the root's half of it.
  EXPECT_NEAR(std::sqrt(sum / n) / expected, 1.0, 4 * 0.016);
  labs::write_value("decay-equilibrium-test", "steps", 1 / (6e-4 * 0.1));
}

// The corners of the shapes, and the floor of the noise.
TEST(RateSchedule, HasTheRightCorners) {
  RateSchedule s{.shape = RateShape::linear, .steps = 110, .warmup = 10, .peak = 1.0, .last = 0.2};
  EXPECT_DOUBLE_EQ(s.rate(0), 0.1);
  EXPECT_DOUBLE_EQ(s.rate(9), 1.0);
  EXPECT_DOUBLE_EQ(s.rate(60), 0.6);
  EXPECT_DOUBLE_EQ(s.rate(110), 0.2);
  s.shape = RateShape::wsd, s.decay = 20;
  EXPECT_DOUBLE_EQ(s.rate(89), 1.0);
  EXPECT_DOUBLE_EQ(s.rate(100), 0.6);  // half of the last 20 steps
  EXPECT_DOUBLE_EQ(s.rate(500), 0.2);
  s.shape = RateShape::constant;
  EXPECT_DOUBLE_EQ(s.rate(500), 1.0);
  s.shape = RateShape::cosine;
  for (const std::int64_t t : {0, 9, 10, 47, 110, 400})
    EXPECT_EQ(s.rate(t), (Schedule{.steps = 110, .warmup = 10, .peak = 1.0, .last = 0.2}.rate(t)));
}

TEST(RateSchedule, TheNoiseFloorIsProportionalToTheRate) {
  core::Rng rng(3);
  const double h = 2.0, sigma = 1.0;
  for (const double eta : {0.1, 0.01}) {
    double x = 0, sum = 0;
    const int steps = 400'000;
    for (int t = 0; t < steps; ++t) {
      x -= eta * (h * x + sigma * static_cast<double>(rng.normal()));
      sum += h / 2 * x * x;
    }
    const double expected = eta * sigma * sigma / (2 * (2 - eta * h));
    // Squares stay correlated over 1/(2 eta h) steps, so steps * eta * h of them are independent: 8,000 at the lower rate.
    EXPECT_NEAR(sum / steps / expected, 1.0, 4 * std::sqrt(2 / (steps * eta * h)));
  }
}

// A spike is seen, does not hide the next one, and false alarms are rare.
TEST(Spikes, AreSeenAndDoNotHideTheNext) {
  core::Rng rng(2);
  SpikeDetector detector(128, 5.0);
  int alarms = 0;
  for (int t = 0; t < 20'000; ++t) {
    const double z = detector.push(3 + 0.1 * static_cast<double>(rng.normal()));
    alarms += detector.stands_out(z) ? 1 : 0;
  }
  EXPECT_LE(alarms, 1);
  EXPECT_GT(detector.push(8.0), 40.0);
  EXPECT_GT(detector.push(8.0),
            20.0);  // it entered at five deviations: the next one still stands out
  EXPECT_TRUE(std::isinf(detector.push(std::numeric_limits<double>::quiet_NaN())));
  EXPECT_LT(std::abs(detector.push(3.0)), 1.0);
  int until_accepted = 0;
  while (detector.stands_out(detector.push(8.0))) ++until_accepted;
  EXPECT_LT(until_accepted, 128);  // a loss that has moved for good
  labs::write_value("spikes-test", "four", 1 / (0.5 * std::erfc(4 / std::sqrt(2.0))));
  labs::write_value("spikes-test", "five", 1e-6 / (0.5 * std::erfc(5 / std::sqrt(2.0))));
}

TEST(Spikes, GoOnFromASavedWindow) {
  SpikeDetector one(16, 4.0), two(16, 4.0);
  core::Rng rng(4);
  for (int t = 0; t < 30; ++t) one.push(static_cast<double>(rng.normal()));
  two.restore(one.window());
  EXPECT_EQ(one.push(1.5), two.push(1.5));
}

}  // namespace
}  // namespace rose::trainer
