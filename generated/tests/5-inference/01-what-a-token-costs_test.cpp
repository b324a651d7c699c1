// Tests of the chapter "What a token costs".

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
#include "rose/core/rng.h"
#include "rose/infer/cost.h"
#include "rose/model/files/budget.h"

namespace rose::infer {
namespace {

// One conversation, many, and a prompt.
model::Config qwen3_06b() {
  model::Config c;
  c.family = model::Family::qwen3;
  c.vocab_size = 151936, c.layers = 28, c.heads = 16, c.kv_heads = 8, c.head_dim = 128;
  c.hidden = 1024, c.ffn = 3072, c.max_positions = 40960, c.tied_head = true, c.qk_norm = true;
  return c;
}

constexpr kernels::gpu::Ceilings h200{.flops = 989e12, .bytes = 4.4e12};

/// The least time of a step in which `sequences` decode, each seeing `context` keys with its own.
double decode_ms(const model::Config& c, std::int64_t sequences, std::int64_t context,
                 Widths widths = {}) {
  Work work;
  for (std::int64_t s = 0; s < sequences; ++s) work.add(context - 1, 1, true);
  return floor_us(step_cost(c, work, widths), h200) / 1e3;
}

double rounded(double value, double unit) {
  return std::round(value / unit) * unit;
}

TEST(TokenCost, ByHand) {
  const model::Config c = qwen3_06b();
  const double one = decode_ms(c, 1, 128), many = decode_ms(c, 256, 700);
  const Work prompt = Work{}.add(0, 8192, true);
  EXPECT_EQ(prompt.attended, 8192 * 8193 / 2);
  const double prompt_ms = floor_us(step_cost(c, prompt), h200) / 1e3;

  // Each number again, as on paper.
  const double m = 28.0 * (2 * 24 * 128 * 1024 + 3 * 3072 * 1024), head = 151936.0 * 1024;
  EXPECT_NEAR(one, (2 * (m + head) + 114688.0 * 129) / 4.4e9, 1e-9);
  EXPECT_NEAR(many, (2 * (m + head) + 114688.0 * 256 * 701) / 4.4e9, 1e-9);
  EXPECT_NEAR(prompt_ms, (2 * m * 8192 + 2 * head + 4.0 * 28 * 16 * 128 * 4096.5 * 8192) / 989e9,
              1e-9);

  const char* id = "token-costs-by-hand";
  labs::write_value(id, "weights-gb", rounded(2 * (m + head) / 1e9, 0.01));
  labs::write_value(id, "kv-bytes", static_cast<double>(model::kv_bytes_per_token(c, 2)));
  labs::write_value(id, "one-ms", rounded(one, 0.001));
  labs::write_value(id, "one-rate", rounded(1e3 / one, 1));
  labs::write_value(id, "many-ms", rounded(many, 0.01));
  labs::write_value(id, "many-rate", rounded(256e3 / many, 1));
  labs::write_value(id, "prompt-ms", rounded(prompt_ms, 0.1));
}

// Where sharing ends.
TEST(TokenCost, WhereSharingEnds) {
  const model::Config small = qwen3_06b();
  model::Config large = small;
  large.family = model::Family::llama, large.qk_norm = false, large.tied_head = false;
  large.layers = 32, large.heads = 32, large.hidden = 4096, large.ffn = 14336;
  large.vocab_size = 128256;

  const double knee = 2 * h200.flops / (2 * h200.bytes);
  const auto crossing = [](const model::Config& c) {
    return 2.0 * static_cast<double>(model::matrix_parameters(c)) /
           static_cast<double>(model::kv_bytes_per_token(c, 2));
  };
  // At the crossing the step takes twice as long as with an empty cache.
  const auto sequences = std::llround(crossing(small) / 650);
  EXPECT_NEAR(decode_ms(small, sequences, 650) / decode_ms(small, 1, 1), 2, 0.01);

  const double limit =
      h200.bytes / (700 * static_cast<double>(model::kv_bytes_per_token(small, 2)));
  EXPECT_NEAR(256e3 / decode_ms(small, 256, 700) / limit, 0.94, 0.005);
  EXPECT_GT(limit, 4096e3 / decode_ms(small, 4096, 700));

  const char* id = "token-costs-knee";
  labs::write_value(id, "knee", rounded(knee, 1));
  labs::write_value(id, "crossing", rounded(crossing(small), 1));
  labs::write_value(id, "crossing-8b", rounded(crossing(large), 1));
  labs::write_value(id, "asymptote", rounded(limit, 1));
}

// What rides along.
TEST(TokenCost, WhatRidesAlong) {
  const model::Config c = qwen3_06b();
  Work work;
  for (int s = 0; s < 256; ++s) work.add(699, 1, true);
  const double alone = floor_us(step_cost(c, work), h200);
  std::int64_t most = 0;
  for (std::int64_t chunk = 100;; chunk += 100) {
    Work with = work;
    with.add(0, chunk, false);
    if (floor_us(step_cost(c, with), h200) > 1.05 * alone) break;
    most = chunk;
  }
  labs::write_value("token-costs-chunk", "free", static_cast<double>(most));
  EXPECT_GT(most, 10 * 225);  // the caches leave far more idle arithmetic than the weights do
}

// Bound a whole set of requests.
TEST(TokenCost, AMixOfRequests) {
  const model::Config c = qwen3_06b();
  core::Rng rng(0);
  std::vector<std::int64_t> prompt, answer;
  for (int s = 0; s < 256; ++s) {
    prompt.push_back(100 + rng.below(925));
    answer.push_back(100 + rng.below(925));
  }
  Work reading;
  for (const std::int64_t n : prompt) reading.add(0, n, true);
  const double prompts_us = floor_us(step_cost(c, reading), h200);
  double us = prompts_us;
  double tokens = 256, steps = 0;  // reading the prompt gives the first token
  for (std::int64_t j = 1; j < *std::ranges::max_element(answer); ++j, ++steps) {
    Work work;
    for (std::size_t s = 0; s < prompt.size(); ++s)
      if (answer[s] > j) work.add(prompt[s] + j - 1, 1, true);
    us += floor_us(step_cost(c, work), h200);
    tokens += static_cast<double>(work.tokens);
  }
  EXPECT_EQ(tokens, static_cast<double>(std::accumulate(answer.begin(), answer.end(), 0L)));
  const double weights_us = steps * 2 * static_cast<double>(model::matrix_parameters(c)) / 4.4e6;
  const char* id = "token-costs-mix";
  labs::write_value(id, "rate-k", rounded(1e3 * tokens / us, 1));
  labs::write_value(id, "prompt-percent", rounded(100 * prompts_us / us, 1));
  labs::write_value(id, "weights-percent", rounded(100 * weights_us / us, 1));
}

// How many conversations fit.
TEST(TokenCost, HowManyFit) {
  const model::Config c = qwen3_06b();
  const double room = 0.9 * 141e9 - 2.0 * static_cast<double>(model::matrix_parameters(c)) - 2e9;
  const std::int64_t positions = positions_in(c, room);
  EXPECT_LE(static_cast<double>(positions * model::kv_bytes_per_token(c, 2)), room);
  EXPECT_GT(static_cast<double>((positions + 1) * model::kv_bytes_per_token(c, 2)), room);
  const char* id = "token-costs-memory";
  labs::write_value(id, "positions-m", rounded(static_cast<double>(positions) / 1e6, 0.01));
  labs::write_value(id, "sequences", static_cast<double>(positions / 700));
  labs::write_value(id, "reserved", static_cast<double>(positions / c.max_positions));
}

}  // namespace
}  // namespace rose::infer
