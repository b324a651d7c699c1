// Tests of the chapter "Mixed precision".

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
#include "labs/gpu/gpu_test.h"
#include "rose/core/error.h"
#include "rose/core/parallel.h"
#include "rose/core/rng.h"
#include "rose/kernels/cast.h"
#include "rose/kernels/gpu/flat_step.h"
#include "rose/model/files/budget.h"
#include "rose/model/gpu_parameters.h"
#include "rose/trainer/loss_scale.h"

namespace rose::model {
namespace {

// A thousand small updates of a weight.
TEST(MixedPrecision, SmallUpdatesNeedMoreBits) {
  constexpr int updates = 1000, trials = 64;
  constexpr float change = 1e-3f;
  float full = 1.0f, nearest = 1.0f;
  std::vector<kernels::bf16> chance(trials, kernels::to_bf16(1.0f));
  core::ThreadPool pool(1);
  for (int u = 0; u < updates; ++u) {
    full -= change;
    nearest = kernels::to_float(kernels::to_bf16(nearest - change));
    std::vector<float> next;
    for (const kernels::bf16 w : chance) next.push_back(kernels::to_float(w) - change);
    kernels::to_bf16_stochastic(next, {.seed = 1, .step = static_cast<std::uint32_t>(u)}, chance,
                                pool);
  }
  double mean = 0, spread = 0;
  for (const kernels::bf16 w : chance) mean += static_cast<double>(kernels::to_float(w)) / trials;
  for (const kernels::bf16 w : chance) {
    const double off = static_cast<double>(kernels::to_float(w)) - mean;
    spread += off * off / (trials - 1);
  }
  EXPECT_NEAR(full, 0.0f, 1e-4f);
  EXPECT_EQ(nearest, 1.0f);
  EXPECT_LT(std::abs(mean), 4 * std::sqrt(spread / trials) + 1e-4);
  labs::write_value("test-small-updates", "chance", std::round(mean * 100) / 100);
  labs::write_value("test-small-updates", "spread", std::round(std::sqrt(spread) * 100) / 100);
}

}  // namespace
}  // namespace rose::model

namespace rose::trainer {
namespace {

// A scale is found from above, and tried again.
TEST(LossScale, HalvesAtOnceAndDoublesWithPatience) {
  LossScale scale(65536.0f, 3);
  const float gradient = 3.0f;  // overflows fp16 beyond 21,834
  int skipped = 0;
  for (int step = 0; step < 12; ++step) {
    const float scaled = kernels::to_float(kernels::to_f16(gradient * scale.scale()));
    if (std::isfinite(scaled)) {
      scale.succeeded();
    } else {
      scale.failed();
      ++skipped;
    }
    EXPECT_LE(scale.scale(), 65536.0f);
  }
  EXPECT_EQ(skipped, 4);  // twice at first, then each time it is doubled again
  EXPECT_EQ(kernels::to_float(kernels::to_f16(0x1p-26f)), 0.0f);
  EXPECT_EQ(kernels::to_float(kernels::to_f16(0x1p-26f * 65536.0f)), 0x1p-10f);
}

}  // namespace
}  // namespace rose::trainer

namespace rose::model {
namespace {

// Places do not overlap, and blocks cover them.
std::vector<Config> flat_variety() {
  Config base;
  base.vocab_size = 211, base.layers = 2, base.heads = 4, base.kv_heads = 2, base.head_dim = 64;
  base.hidden = 128, base.ffn = 192, base.max_positions = 512;
  std::vector<Config> list;
  Config c = base;
  c.family = Family::gpt2, c.kv_heads = 4, c.norm = NormKind::layernorm;
  c.activation = Activation::gelu_tanh, c.qkv_bias = c.o_bias = c.mlp_bias = c.tied_head = true;
  c.hidden = c.heads * c.head_dim;
  list.push_back(c);
  list.push_back(base);
  c = base, c.family = Family::qwen3, c.qk_norm = c.tied_head = true, c.head_dim = 128;
  list.push_back(c);
  return list;
}

TEST(FlatLayout, HasOnePlaceForEveryTensor) {
  for (const Config& config : flat_variety()) {
    const FlatLayout layout(config);
    std::vector<std::pair<std::int64_t, std::int64_t>> places;
    std::int64_t elements = 0;
    for (const FlatTensor& tensor : layout.tensors()) {
      places.emplace_back(tensor.first, tensor.first + tensor.elements);
      elements += tensor.elements;
      EXPECT_EQ(tensor.first % 8, 0) << tensor.name;
    }
    EXPECT_EQ(elements, parameter_count(config));
    std::ranges::sort(places);
    for (std::size_t i = 1; i < places.size(); ++i)
      EXPECT_LE(places[i - 1].second, places[i].first);
    EXPECT_LE(places.back().second, layout.size());
    std::int64_t covered = 0;
    for (const kernels::gpu::FlatBlock& block : layout.blocks([](const auto&) { return 0; }))
      covered += block.count;
    EXPECT_EQ(covered, elements);
  }
}

}  // namespace
}  // namespace rose::model

namespace rose::kernels::gpu {
namespace {

// One launch has the bits of many.
using GpuFlatStep = GpuTest;

TEST_F(GpuFlatStep, HasTheBitsOfTheCpu) {
  constexpr std::int64_t size = 8192;
  const std::vector<FlatBlock> blocks{{0, 1024, 0}, {1024, 1000, 0}, {2048, 8, 1}, {4096, 1024, 1}};
  std::vector<float> weight(size), gradient(size), first(size), second(size);
  core::Rng rng(1);
  for (const FlatBlock& b : blocks) {
    for (std::int64_t i = b.first; i < b.first + b.count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      weight[at] = rng.normal(), gradient[at] = rng.normal(), first[at] = rng.normal();
      second[at] = std::abs(rng.normal());
    }
  }
  const std::array<AdamWStep, 2> steps{at_step({.decay = 0.1f, .rate = 0.01f}, 3),
                                       at_step({.rate = 0.02f}, 3)};
  const auto buffer = [](const std::vector<float>& v) { return Buffer::of(std::span(v)); };
  const Buffer w = buffer(weight), g = buffer(gradient), m = buffer(first), v = buffer(second),
               copy(size * 2), on_device = Buffer::of(std::span(blocks)), result(8),
               room(flat_square_sum_workspace(4));
  flat_adamw(on_device.as<FlatBlock>(), 4,
             {w.as<float>(), g.as<float>(), m.as<float>(), v.as<float>(), copy.data()}, steps, 0.5f,
             {});
  flat_square_sum(on_device.as<FlatBlock>(), 4, g.as<float>(), result.as<double>(),
                  room.workspace(), {});
  synchronize({});
  std::vector<double> sums;
  core::ThreadPool pool(1);
  for (const FlatBlock& b : blocks) {
    const auto part = [&](std::vector<float>& all) {
      return std::span(all).subspan(static_cast<std::size_t>(b.first),
                                    static_cast<std::size_t>(b.count));
    };
    adamw(part(weight), part(gradient), 0.5f, part(first), part(second),
          steps[static_cast<std::size_t>(b.group)], pool);
    sums.push_back(0);
    square_sums(part(gradient), std::span(sums).last(1), pool);
  }
  expect_same_bits(w.values<float>(), weight, "weights");
  expect_same_bits(m.values<float>(), first, "first moments");
  expect_same_bits(v.values<float>(), second, "second moments");
  EXPECT_EQ(result.values<double>().front(), fold_square_sums(sums));
  const std::vector<std::uint16_t> rounded = copy.values<std::uint16_t>();
  for (const std::size_t i : {std::size_t{0}, std::size_t{2023}, std::size_t{5000}})
    EXPECT_EQ(rounded[i], to_bf16(weight[i]).bits);
}

}  // namespace
}  // namespace rose::kernels::gpu
