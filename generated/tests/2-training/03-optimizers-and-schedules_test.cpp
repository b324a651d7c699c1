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

}  // namespace
}  // namespace rose::trainer
