// Tests of the chapter "CUDA graphs and overlapped scheduling".

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
#include "labs/inference/pass.h"
#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/infer/cpu_runner.h"
#include "rose/infer/gpu_runner.h"
#include "rose/infer/profile.h"
#include "rose/kernels/gpu/activity.h"
#include "rose/kernels/gpu/buffer.h"
#include "rose/kernels/gpu/graph.h"
#include "rose/kernels/gpu/tokens.h"
#include "rose/model/packed_weights.h"

namespace rose::infer {
namespace {

// Which sizes are recorded.
using Sizes = std::vector<std::int64_t>;

TEST(GpuGraphs, SizesAndKinds) {
  EXPECT_EQ(graph_sizes(1), (Sizes{1}));
  EXPECT_EQ(graph_sizes(6), (Sizes{1, 2, 4, 6}));
  EXPECT_EQ(graph_sizes(20), (Sizes{1, 2, 4, 8, 16, 20}));
  EXPECT_EQ(graph_splits(100), (Sizes{1}));
  EXPECT_EQ(graph_splits(2048), (Sizes{1, 4}));
  EXPECT_EQ(graph_splits(3000), (Sizes{1, 4, 6}));
  EXPECT_EQ(graph_splits(40960), (Sizes{1, 4, 16}));
  EXPECT_EQ(short_sizes(8192), (Sizes{16, 32, 64, 128, 256}));
  EXPECT_EQ(short_sizes(100), (Sizes{16, 32, 64}));
  EXPECT_EQ(short_sizes(8), Sizes{});
  const Sizes sizes = graph_sizes(20);
  EXPECT_EQ(bucket_of(sizes, 1), 1);
  EXPECT_EQ(bucket_of(sizes, 9), 16);
  EXPECT_EQ(bucket_of(sizes, 21), -1);
}

TEST(GpuGraphs, ChecksComeBeforeTheDevice) {
  using kernels::gpu::resolve_tokens;
  const std::int32_t id[1] = {0};
  std::int32_t out[1] = {};
  const auto argument_of = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const core::Error& error) {
      return error.argument();
    }
    return "nothing";
  };
  EXPECT_EQ(argument_of([&] { resolve_tokens(nullptr, 1, id, 1, out, {}); }), "ids");
  EXPECT_EQ(argument_of([&] { resolve_tokens(id, 1, nullptr, 1, out, {}); }), "chosen");
  EXPECT_EQ(argument_of([&] { resolve_tokens(id, 0, nullptr, 0, nullptr, {}); }), "nothing");
  EXPECT_EQ(argument_of([&] { kernels::gpu::scatter_entries(nullptr, 1, out, 1, {}); }), "entries");
}

// Play conversations through a runner.
using GpuRunnerTest = kernels::gpu::GpuTest;

std::size_t count_of(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

model::Config small_model() {
  model::Config c;
  c.family = model::Family::qwen3;
  c.vocab_size = 211, c.layers = 2, c.heads = 4, c.kv_heads = 2, c.head_dim = 64;
  c.hidden = 128, c.ffn = 192, c.max_positions = 2048, c.qk_norm = c.tied_head = true;
  return c;
}

std::shared_ptr<const model::WeightSet> small_weights() {
  auto weights = model::random_weights(small_model(), 3);
  for (const model::Parameter& p : weights->parameters()) {
    for (float& x : p.f32()) x *= p.shape.size() == 2 ? 4.0f : 1.0f;
  }
  return weights;
}

struct Said {
  std::vector<std::int32_t> tokens, top_ids;
  std::vector<float> logprobs, top_logprobs;
  bool operator==(const Said&) const = default;
};

/// Prompts of lengths 5, 540, 1, 33 and so on, each with `steps` tokens after it; `first` and `many` say which.
std::vector<Said> play(Runner& runner, std::size_t first, std::size_t many, int steps, bool ahead) {
  const std::vector<std::int32_t> lengths{5, 540, 1, 33, 17, 2};
  const std::int64_t stride = 64;
  std::vector<std::int32_t> table(many * count_of(stride)), offsets{0}, ids, positions, wanted,
      next;
  std::iota(table.begin(), table.end(), 1);
  const std::vector<std::pair<std::int32_t, float>> bias{{7, 2.0f}, {9, -1.0f}};
  const std::vector<std::uint32_t> mask(7, 0x7fffffffu);
  std::vector<RowSampling> sampling(many);
  for (std::size_t i = 0; i < many; ++i) {
    const std::size_t s = first + i;
    core::Rng rng(s);
    for (std::int32_t t = 0; t < lengths[s]; ++t) {
      ids.push_back(static_cast<std::int32_t>(rng.below(211)));
      positions.push_back(t);
    }
    offsets.push_back(static_cast<std::int32_t>(ids.size()));
    wanted.push_back(offsets.back() - 1);
    next.push_back(lengths[s]);
    sampling[i].logprobs = 3;
    sampling[i].params.temperature = s % 2 == 0 ? 0.0f : 0.8f;
    sampling[i].params.seed = 11 + s;
    if (s == 3) sampling[i].adjust = {.bias = bias, .mask = mask};
    sampling[i].processed = s == 3;
  }
  std::vector<Said> said(many);
  const auto take = [&] {
    const StepOutput out = runner.wait();
    for (std::size_t i = 0; i < many; ++i) {
      said[i].tokens.push_back(out.tokens[i]);
      said[i].logprobs.push_back(out.logprobs[i]);
      for (std::size_t k = 0; k < 3; ++k) {
        said[i].top_ids.push_back(out.top_ids[i * count_of(out.top_stride) + k]);
        said[i].top_logprobs.push_back(out.top_logprobs[i * count_of(out.top_stride) + k]);
      }
    }
  };
  for (int step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < many; ++i) {
      sampling[i].params.position = static_cast<std::uint64_t>(next[i]);
    }
    runner.launch({.ids = ids,
                   .positions = positions,
                   .row_offsets = offsets,
                   .page_table = table,
                   .table_stride = stride,
                   .copies = {},
                   .logit_tokens = wanted,
                   .sampling = sampling});
    if (!ahead || step > 0) take();
    ids.clear(), positions.clear(), offsets.assign(1, 0), wanted.clear();
    for (std::size_t i = 0; i < many; ++i) {
      ids.push_back(ahead ? -static_cast<std::int32_t>(i) - 1 : said[i].tokens.back());
      positions.push_back(next[i]++);
      wanted.push_back(static_cast<std::int32_t>(i));
      offsets.push_back(static_cast<std::int32_t>(i) + 1);
    }
  }
  if (ahead) take();
  return said;
}

// Recorded or launched, ahead or not, alone or together.
void expect_graphs_change_no_bit(kernels::DType dtype) {
  const auto weights = small_weights();
  GpuRunnerOptions options{
      .tokens = 1024, .sequences = 8, .positions = 1024, .pages = 1000, .dtype = dtype};
  const auto recorded = make_gpu_runner(weights, options);
  options.graphs = false;
  const auto launched = make_gpu_runner(weights, options);
  std::printf("%s\n", recorded->memory().describe().c_str());
  constexpr int steps = 40;
  const std::vector<Said> plain = play(*launched, 0, 6, steps, false);
  EXPECT_EQ(play(*launched, 0, 6, steps, true), plain);
  EXPECT_EQ(play(*recorded, 0, 6, steps, false), plain);
  EXPECT_EQ(play(*recorded, 0, 6, steps, true), plain);
  for (std::size_t s = 0; s < 6; ++s) {
    EXPECT_EQ(play(*recorded, s, 1, steps, true).front(), plain[s]) << s;
  }
  // Two to four short pieces of prompts together are played from a recording too.
  for (std::size_t many = 2; many <= 4; ++many) {
    const std::vector<Said> some = play(*recorded, 2, many, steps, true);
    for (std::size_t i = 0; i < many; ++i) EXPECT_EQ(some[i], plain[2 + i]) << many << ' ' << i;
  }
  for (const std::int32_t token : plain[3].tokens) EXPECT_NE(token % 32, 31);
}

TEST_F(GpuRunnerTest, GraphsAndOverlapChangeNoBit) {
  expect_graphs_change_no_bit(kernels::DType::bf16);
}

TEST_F(GpuRunnerTest, InFp16GraphsAndOverlapChangeNoBit) {
  expect_graphs_change_no_bit(kernels::DType::f16);
}

TEST_F(GpuRunnerTest, InFp32GraphsAndOverlapChangeNoBit) {
  expect_graphs_change_no_bit(kernels::DType::f32);
}

TEST_F(GpuRunnerTest, InFp32SaysWhatTheCpuSays) {
  const auto weights = small_weights();
  const auto here = make_cpu_runner(weights, {.max_tokens = 1024, .max_sequences = 8});
  const auto there = make_gpu_runner(weights, {.tokens = 1024,
                                               .sequences = 8,
                                               .positions = 1024,
                                               .pages = 1000,
                                               .dtype = kernels::DType::f32});
  const std::vector<Said> on_cpu = play(*here, 0, 3, 40, false),
                          on_gpu = play(*there, 0, 3, 40, false);
  for (const std::size_t greedy : {std::size_t{0}, std::size_t{2}}) {
    EXPECT_EQ(on_gpu[greedy].tokens, on_cpu[greedy].tokens);
    for (std::size_t i = 0; i < 40; ++i)
      EXPECT_NEAR(on_gpu[greedy].logprobs[i], on_cpu[greedy].logprobs[i], 1e-3f);
  }
  EXPECT_THROW(make_gpu_runner(model::pack_weights(weights, model::parse_quantization("int8")),
                               {.tokens = 64, .sequences = 2, .dtype = kernels::DType::f32}),
               core::Error);
}

TEST_F(GpuRunnerTest, ChoosesWhatThePassSays) {
  const auto weights = small_weights();
  const auto runner =
      make_gpu_runner(weights, {.tokens = 1024, .sequences = 8, .positions = 1024, .pages = 1000});
  const Said said = play(*runner, 0, 1, 20, true).front();
  std::vector<std::int32_t> ids, positions(24), offsets{0, 24};
  core::Rng rng(0);
  for (int i = 0; i < 5; ++i) ids.push_back(static_cast<std::int32_t>(rng.below(211)));
  ids.insert(ids.end(), said.tokens.begin(), said.tokens.end() - 1);
  std::iota(positions.begin(), positions.end(), 0);
  labs::GpuPass pass(*weights, 32, 32);
  const std::vector<float> logits = pass.run({ids, positions, offsets}, nullptr);
  for (std::size_t i = 0; i < 20; ++i) {
    const auto row = std::span(logits).subspan((4 + i) * 211, 211);
    const auto best = std::ranges::max_element(row) - row.begin();
    EXPECT_EQ(said.tokens[i], best);
    EXPECT_EQ(said.top_ids[3 * i], best);
    EXPECT_EQ(said.logprobs[i], said.top_logprobs[3 * i]);
  }
}

TEST_F(GpuRunnerTest, PagesAndWeightsMove) {
  const auto runner = make_gpu_runner(
      small_weights(), {.tokens = 1024, .sequences = 8, .positions = 1024, .pages = 1000});
  const std::vector<Said> before = play(*runner, 0, 2, 10, true);
  const std::vector<std::int32_t> pages{1, 65, 66}, others{900, 901, 902};
  std::vector<std::byte> bytes(3 * count_of(runner->memory().page_bytes)), again(bytes.size());
  runner->read_pages(pages, bytes);
  runner->write_pages(others, bytes);
  runner->read_pages(others, again);
  EXPECT_EQ(again, bytes);
  EXPECT_THROW(runner->read_pages(std::vector<std::int32_t>{1000}, {}), core::Error);
  runner->set_weights(model::random_weights(small_model(), 8));
  EXPECT_NE(play(*runner, 0, 2, 10, true), before);
  runner->set_weights(small_weights());
  EXPECT_EQ(play(*runner, 0, 2, 10, true), before);
  EXPECT_THROW(runner->wait(), core::Error);
}

}  // namespace
}  // namespace rose::infer
