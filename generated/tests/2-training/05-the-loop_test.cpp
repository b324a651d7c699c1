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
#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/trainer/compute.h"
#include "rose/trainer/cpu_compute.h"
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

}  // namespace
}  // namespace rose::trainer
