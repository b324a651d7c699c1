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

#include "labs/gpu/gpu_test.h"
#include "rose/core/error.h"
#include "rose/core/parallel.h"
#include "rose/core/rng.h"
#include "rose/kernels/gpu/flat_step.h"
#include "rose/model/files/budget.h"
#include "rose/model/gpu_parameters.h"

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
