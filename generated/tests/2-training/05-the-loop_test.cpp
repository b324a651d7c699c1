// Tests of the chapter "The loop".

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
#include "labs/training/double_model.h"
#include "rose/core/error.h"
#include "rose/core/json.h"
#include "rose/core/rng.h"
#include "rose/trainer/compute.h"
#include "rose/trainer/cpu_compute.h"
#include "rose/trainer/loop.h"
#include "rose/trainer/trainer.h"

namespace rose::trainer {
namespace {

// The compute has the bits of the first run.
model::Config tiny_config(model::Family family) {
  model::Config c;
  c.family = family;
  c.vocab_size = 40, c.layers = 2, c.heads = 4, c.kv_heads = 2, c.head_dim = 8, c.hidden = 32,
  c.ffn = 48, c.max_positions = 64;
  c.tied_head = true;
  c.qk_norm = family == model::Family::qwen3;
  if (family == model::Family::gpt2) {
    c.kv_heads = 4;
    c.norm = model::NormKind::layernorm, c.activation = model::Activation::gelu_tanh;
    c.qkv_bias = c.o_bias = c.mlp_bias = true;
  }
  return c;
}

std::vector<std::int32_t> cycle(std::size_t n) {
  std::vector<std::int32_t> tokens(n);
  for (std::size_t i = 0; i < n; ++i) tokens[i] = static_cast<std::int32_t>(i * 7 % 40);
  return tokens;
}

TEST(CpuCompute, HasTheBitsOfTheFirstRun) {
  core::ThreadPool pool(2);
  const std::vector<std::int32_t> tokens = cycle(1000);
  TrainerOptions options{.batch = 4, .context = 24};
  options.schedule = {.steps = 6, .warmup = 2, .peak = 1e-2, .last = 1e-3};
  Trainer trainer(model::random_weights(tiny_config(model::Family::llama), 3), options, pool);
  ComputeOptions same;
  same.optimizer.beta2 = 0.99f;
  CpuCompute compute(model::random_weights(tiny_config(model::Family::llama), 3), same, pool);
  std::vector<std::int32_t> positions, offsets;
  for (int t = 0; t < 96; ++t) positions.push_back(t % 24);
  for (int b = 0; b <= 4; ++b) offsets.push_back(24 * b);
  for (std::int64_t step = 0; step < 6; ++step) {
    const StepResult want = trainer.step(tokens);
    Windows windows;
    draw_windows(tokens, 4, 24, 1, static_cast<std::uint64_t>(step), windows);
    const MicroBatch batch{windows.ids, positions, offsets, windows.targets, {}};
    compute.zero_gradients();
    const LossSum sum = compute.accumulate(batch, 1.0 / total_weight(batch));
    const double norm = compute.gradient_norm();
    EXPECT_EQ(sum.mean(), want.loss);
    EXPECT_EQ(norm, want.gradient_norm);
    compute.update({.update = step + 1,
                    .rate = options.schedule.rate(step),
                    .scale = norm > 1.0 ? 1.0 / norm : 1.0});
  }
  for (std::size_t p = 0; p < trainer.weights().parameters().size(); ++p)
    EXPECT_TRUE(std::ranges::equal(trainer.weights().parameters()[p].f32(),
                                   compute.weights().parameters()[p].f32()));
}

// GPT-2's operations for a token.
TEST(Loop, CountsTheOperationsOfAToken) {
  model::Config c;
  c.family = model::Family::gpt2;
  c.vocab_size = 50257, c.layers = 12, c.heads = c.kv_heads = 12, c.head_dim = 64, c.hidden = 768,
  c.ffn = 3072;
  labs::write_value("loop-flops-test", "gpt2-mflop", flops_per_token(c, 1024) / 1e6);
  labs::write_value("loop-flops-test", "attention-mflop",
                    (flops_per_token(c, 1024) - flops_per_token(c, 0)) / 1e6);
  EXPECT_NEAR(flops_per_token(c, 0), 6.0 * (12 * 12 * 768.0 * 768.0 + 50257 * 768.0), 1);
  EXPECT_NEAR(flops_per_token(c, 1024) - flops_per_token(c, 0), 6.0 * 12 * 768 * 1024, 1);
}

// Rows of the cycle, a function of the number of calls.
BatchSource cycle_source(std::int64_t& calls) {
  return [&calls, tokens = cycle(1000)](std::int64_t rows, std::int64_t context,
                                        MicroBatchBuffer& out) {
    out.clear();
    Windows windows;
    draw_windows(tokens, rows, context, 5, static_cast<std::uint64_t>(calls++), windows);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t t = 0; t < context; ++t) {
        const auto at = static_cast<std::size_t>(r * context + t);
        out.push(windows.ids[at], windows.targets[at]);
      }
      out.end_sequence();
    }
  };
}

LoopOptions small_loop() {
  LoopOptions options{.rows = 2, .context = 24, .micro_batches = 2};
  options.rate = {.shape = RateShape::linear, .steps = 60, .warmup = 5, .peak = 1e-2, .last = 1e-3};
  return options;
}

TEST(Loop, LearnsAndGoesOnWithTheSameBits) {
  core::ThreadPool pool(2);
  std::int64_t calls = 0, again_calls = 30 * 2;
  const auto config = tiny_config(model::Family::qwen3);
  CpuCompute compute(model::random_weights(config, 3), {}, pool),
      other(model::random_weights(config, 8), {}, pool);
  Loop loop(compute, cycle_source(calls), small_loop()),
      resumed(other, cycle_source(again_calls), small_loop());
  std::vector<double> losses, resumed_losses;
  for (int s = 0; s < 30; ++s) losses.push_back(loop.step().sum.mean());
  std::map<std::string, std::vector<std::byte>> saved;
  compute.visit([&](const StateTensor& t) {
    saved[t.role + t.name].resize(t.bytes), t.read(saved[t.role + t.name]);
  });
  other.visit([&](const StateTensor& t) { t.write(saved.at(t.role + t.name)); });
  resumed.restore(LoopState::from_json(
      core::parse_json(core::json::serialize(loop.state().to_json()), "state").as_object(),
      "state"));
  for (int s = 30; s < 60; ++s)
    losses.push_back(loop.step().sum.mean()), resumed_losses.push_back(resumed.step().sum.mean());
  EXPECT_NEAR(losses.front(), std::log(40.0), 0.1);
  EXPECT_LT(losses.back(), 0.2);
  EXPECT_TRUE(std::equal(resumed_losses.begin(), resumed_losses.end(), losses.begin() + 30));
  EXPECT_EQ(core::json::serialize(loop.state().to_json()),
            core::json::serialize(resumed.state().to_json()));
}

TEST(Loop, ANaNNeverReachesTheWeights) {
  core::ThreadPool pool(1);
  std::int64_t calls = 0;
  const auto weights = model::random_weights(tiny_config(model::Family::llama), 3);
  CpuCompute compute(weights, {}, pool);
  LoopOptions options = small_loop();
  options.watch.give_up = 3;
  Loop loop(compute, cycle_source(calls), options);
  loop.step();
  float& poisoned = weights->parameter("norm.weight").f32()[0];
  const float good = std::exchange(poisoned, std::numeric_limits<float>::quiet_NaN());
  const std::vector<float> before(weights->parameter("embed.weight").f32().begin(),
                                  weights->parameter("embed.weight").f32().end());
  EXPECT_TRUE(loop.step().skipped);
  EXPECT_TRUE(std::ranges::equal(before, weights->parameter("embed.weight").f32()));
  EXPECT_TRUE(loop.step().skipped);
  EXPECT_THROW(loop.step(), core::Error);
  poisoned = good;
  EXPECT_FALSE(loop.step().skipped);
  EXPECT_EQ(loop.state().updates, 2);
  EXPECT_EQ(loop.state().skipped, 2);
}

// One batch and four micro-batches agree within the derived bound.
struct Ragged {
  std::vector<MicroBatchBuffer> parts{4};
  MicroBatchBuffer whole;
  double weight = 0;

  Ragged() {
    core::Rng rng(12);
    const std::array lengths = {23, 9, 31, 17};
    whole.clear();
    for (std::size_t s = 0; s < 4; ++s) {
      parts[s].clear();
      for (int t = 0; t < lengths[s]; ++t) {
        const auto id = static_cast<std::int32_t>(rng.below(40)),
                   next = static_cast<std::int32_t>(rng.below(40));
        const bool counts = s == 1 ? t == 4 : rng.below(5) < 2;
        for (MicroBatchBuffer* b : {&parts[s], &whole}) b->push(id, counts ? next : -1);
      }
      parts[s].end_sequence(), whole.end_sequence();
      weight += total_weight(parts[s].view());
    }
  }
};

class Accumulation : public testing::TestWithParam<model::Family> {};

TEST_P(Accumulation, OneBatchAndFourAgreeWithinTheDerivedBound) {
  core::ThreadPool pool(2);
  const Ragged ragged;
  const auto weights = model::random_weights(tiny_config(GetParam()), 3);
  CpuCompute one(weights, {}, pool), four(weights, {}, pool), means(weights, {}, pool);
  labs::DoubleModel oracle(*weights);
  for (CpuCompute* c : {&one, &four, &means}) c->zero_gradients();
  const LossSum whole = one.accumulate(ragged.whole.view(), 1 / ragged.weight);
  const LossSum want = oracle.accumulate(ragged.whole.view(), 1 / ragged.weight);
  LossSum sum;
  for (const MicroBatchBuffer& part : ragged.parts) {
    sum += four.accumulate(part.view(), 1 / ragged.weight);
    means.accumulate(part.view(), 1 / (4 * total_weight(part.view())));
  }
  EXPECT_EQ(sum.loss, whole.loss);  // the same bits per token, added in the same order
  EXPECT_EQ(sum.weight, ragged.weight);
  EXPECT_NEAR(whole.loss / want.loss, 1.0, 1e-6);
  EXPECT_NEAR(whole.z / want.z, 1.0, 1e-6);

  const double n = 80 + 2 * 4, u = std::ldexp(1.0, -24), gamma = n * u / (1 - n * u);
  double worst = 0, mean_of_means = 0, against_oracle = 0;
  std::size_t different = 0;
  for (std::size_t p = 0; p < weights->parameters().size(); ++p) {
    const std::string& name = weights->parameters()[p].name;
    const auto a = one.gradients().parameter(p), b = four.gradients().parameter(p),
               m = means.gradients().parameter(p);
    const labs::Doubles &exact = oracle.gradient.at(name), &size = oracle.magnitude.at(name);
    const labs::Doubles sizes = labs::absolute(exact);
    const double scale = *std::ranges::max_element(sizes);
    for (std::size_t i = 0; i < a.size(); ++i) {
      // The magnitudes were computed in double from weights of the same bits: they are those of the fp32 terms within 1 %.
      const double bound = 2 * gamma * size[i] * 1.01 + std::ldexp(1.0, -149);
      ASSERT_LE(std::abs(double{a[i]} - double{b[i]}), bound) << name << " " << i;
      worst = std::max(worst, std::abs(double{a[i]} - double{b[i]}) / bound);
      mean_of_means = std::max(mean_of_means, std::abs(double{a[i]} - double{m[i]}) / bound);
      different += a[i] != b[i] ? 1 : 0;
      // Keys' biases have no gradient but rounding, so the scale is at least a thousandth.
      against_oracle =
          std::max(against_oracle, std::abs(double{a[i]} - exact[i]) / std::max(scale, 1e-3));
    }
  }
  EXPECT_GT(different, 100u);
  EXPECT_GT(worst, 1e-3);
  EXPECT_GT(mean_of_means, 1000.0);
  EXPECT_LT(against_oracle, 2e-5);
}

INSTANTIATE_TEST_SUITE_P(TwoFamilies, Accumulation,
                         testing::Values(model::Family::gpt2, model::Family::qwen3),
                         [](const auto& info) { return std::string(model::name(info.param)); });

}  // namespace
}  // namespace rose::trainer
