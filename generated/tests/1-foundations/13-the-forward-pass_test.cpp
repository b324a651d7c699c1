// Tests of the chapter "The forward pass, assembled".

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

#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <cstdlib>
#include <new>
#include <numbers>

#include "labs/counting/allocations.h"
#include "labs/evidence/values.h"
#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/model/files/budget.h"
#include "rose/model/files/checkpoint.h"
#include "rose/model/forward.h"
#include "rose/model/kv_cache.h"
#include "rose/model/program.h"
#include "rose/model/weights.h"

namespace rose::model {
namespace {

// Count SmolLM2, and every tensor of every family.
TEST(Budget, CountsSmolLM2) {
  Config c;
  c.vocab_size = 49152, c.layers = 30, c.heads = 9, c.kv_heads = 3, c.head_dim = 64, c.hidden = 576,
  c.ffn = 1536;
  c.max_positions = 8192, c.tied_head = true;
  labs::write_value("test-model-budget", "parameters", static_cast<double>(parameter_count(c)));
  labs::write_value("test-model-budget", "kv-bytes", static_cast<double>(kv_bytes_per_token(c)));
  labs::write_value("test-model-budget", "gflops",
                    std::round(static_cast<double>(forward_flops(c, 128)) / 1e6) / 1e3);
  EXPECT_EQ(parameter_count(c), 134'515'008);
  EXPECT_EQ(matrix_parameters(c),
            parameter_count(c) - 61 * 576);  // tied: all but two norms per block and the last
  EXPECT_EQ(kv_bytes_per_token(c), 2 * 30 * 3 * 64 * 4);
  EXPECT_EQ(2 * matrix_parameters(c) / (4 * 30 * 9 * 64), 3891);  // where attention's work is equal
  EXPECT_EQ(std::int64_t{9} * 8192 * 8192 * 4, 2'415'919'104);  // one layer's weights, as a square
  EXPECT_EQ(forward_flops(c, 128) - forward_flops(c, 128, false), 2 * 49152 * 576);
}

// Describe a tiny model of each family.
Config tiny(Family family) {
  Config c;
  c.family = family;
  c.vocab_size = 97, c.layers = 2, c.heads = 4, c.kv_heads = 4, c.head_dim = 8, c.hidden = 32,
  c.ffn = 48;
  c.max_positions = 2048;
  switch (family) {
    case Family::gpt2:
      c.norm = NormKind::layernorm, c.activation = Activation::gelu_tanh, c.tied_head = true;
      c.qkv_bias = c.o_bias = c.mlp_bias = true;
      break;
    case Family::llama: c.kv_heads = 2; break;
    case Family::qwen2: c.kv_heads = 1, c.qkv_bias = true, c.rope_theta = 1e6f; break;
    case Family::qwen3:
      c.kv_heads = 2, c.qk_norm = true, c.head_dim = 16, c.rope_theta = 1e6f, c.tied_head = true;
      break;
  }
  return c;
}

/// Weights in which nothing is zero or one, so that a forgotten bias or norm shows.
std::shared_ptr<WeightSet> awake(const Config& config) {
  auto weights = random_weights(config, 3);
  core::Rng rng(4);
  for (const Parameter& p : weights->parameters()) {
    const float spread =
        p.shape.size() == 2 ? 6.0f : 1.0f;  // N(0, 0.12): attention is far from uniform
    for (float& x : p.f32()) x = x * spread + (p.shape.size() == 1 ? 0.3f * rng.normal() : 0.0f);
  }
  return weights;
}

std::vector<std::int32_t> some_ids(std::size_t n, std::int64_t vocab, std::uint64_t seed) {
  core::Rng rng(seed);
  std::vector<std::int32_t> ids(n);
  for (auto& id : ids) id = static_cast<std::int32_t>(rng.below(static_cast<std::uint32_t>(vocab)));
  return ids;
}

std::vector<std::int32_t> counted(std::int32_t first, std::size_t n) {
  std::vector<std::int32_t> positions(n);
  std::iota(positions.begin(), positions.end(), first);
  return positions;
}

// Run the model in double precision, the slow and obvious way.
using Row = std::vector<double>;

Row times(const Row& x, const kernels::MatrixView& w, const float* bias) {
  Row y(static_cast<std::size_t>(w.rows));
  for (std::int64_t n = 0; n < w.rows; ++n) {
    const auto* row = static_cast<const float*>(w.data) + n * w.cols;
    double sum = bias == nullptr ? 0.0 : bias[n];
    for (std::size_t k = 0; k < x.size(); ++k) sum += x[k] * row[k];
    y[static_cast<std::size_t>(n)] = sum;
  }
  return y;
}

Row normal(const Row& x, const float* w, const float* b, const Config& config, bool centred) {
  double mean = 0.0, square = 0.0;
  if (centred) mean = std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
  for (const double v : x) square += (v - mean) * (v - mean) / static_cast<double>(x.size());
  Row y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    y[i] = (x[i] - mean) / std::sqrt(square + config.norm_eps) * w[i] + (b == nullptr ? 0.0 : b[i]);
  }
  return y;
}

/// Normalise (when the family does) and turn the heads of one token.
void turn(Row& x, const float* norm, std::int32_t position, const Config& config,
          const RopeSetup& rope) {
  const auto d = static_cast<std::size_t>(config.head_dim);
  for (std::size_t at = 0; at < x.size(); at += d) {
    const auto head = x.begin() + static_cast<std::ptrdiff_t>(at);
    if (norm != nullptr)
      std::ranges::copy(normal(Row(head, head + config.head_dim), norm, nullptr, config, false),
                        head);
    for (std::size_t i = 0; i < rope.inv_freq.size(); ++i) {
      const double angle = double{rope.inv_freq[i]} * position, a = x[at + i],
                   b = x[at + i + d / 2];
      x[at + i] = (a * std::cos(angle) - b * std::sin(angle)) * rope.scale;
      x[at + i + d / 2] = (b * std::cos(angle) + a * std::sin(angle)) * rope.scale;
    }
  }
}

// And take its logits.
std::vector<Row> plain_logits(const WeightSet& weights, std::span<const std::int32_t> ids) {
  const Config& c = weights.config();
  const RopeSetup rope = rope_setup(c);
  const bool centred = c.norm == NormKind::layernorm;
  const auto embedding_row = [](const kernels::MatrixView& m, std::int32_t i) {
    const auto* row = static_cast<const float*>(m.data) + i * m.cols;
    return Row(row, row + m.cols);
  };
  const auto grow = [](Row& x, const Row& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  };
  std::vector<Row> x;
  for (std::size_t t = 0; t < ids.size(); ++t) {
    x.push_back(embedding_row(weights.embed(), ids[t]));
    if (c.family == Family::gpt2)
      grow(x[t], embedding_row(weights.pos_embed(), static_cast<std::int32_t>(t)));
  }
  for (const LayerWeights& l : weights.layers()) {
    std::vector<Row> q, k, v;
    for (std::size_t t = 0; t < x.size(); ++t) {
      const Row read = normal(x[t], l.attn_norm, l.attn_norm_bias, c, centred);
      q.push_back(times(read, l.q, l.q_bias)), k.push_back(times(read, l.k, l.k_bias)),
          v.push_back(times(read, l.v, l.v_bias));
      turn(q[t], l.q_norm, static_cast<std::int32_t>(t), c, rope);
      turn(k[t], l.k_norm, static_cast<std::int32_t>(t), c, rope);
    }
    for (std::size_t t = 0; t < x.size(); ++t) {
      Row mixed(q[t].size());
      for (std::int64_t h = 0; h < c.heads; ++h) {
        const auto d = static_cast<std::size_t>(c.head_dim), at = static_cast<std::size_t>(h) * d;
        const std::size_t from = static_cast<std::size_t>(h * c.kv_heads / c.heads) * d;
        Row weight(t + 1);
        for (std::size_t j = 0; j <= t; ++j) {
          for (std::size_t i = 0; i < d; ++i)
            weight[j] += q[t][at + i] * k[j][from + i] / std::sqrt(static_cast<double>(d));
        }
        const double highest = *std::ranges::max_element(weight);
        double total = 0.0;
        for (double& w : weight) total += w = std::exp(w - highest);
        for (std::size_t j = 0; j <= t; ++j) {
          for (std::size_t i = 0; i < d; ++i) mixed[at + i] += weight[j] / total * v[j][from + i];
        }
      }
      grow(x[t], times(mixed, l.o, l.o_bias));
      const Row read = normal(x[t], l.ffn_norm, l.ffn_norm_bias, c, centred);
      // Raise, and let the gate or the GELU decide what passes.
      Row up = times(read, l.up, l.up_bias);
      const Row gate = l.gate.data == nullptr ? Row() : times(read, l.gate, l.gate_bias);
      for (std::size_t i = 0; i < up.size(); ++i) {
        const double z = up[i];
        if (!gate.empty())
          up[i] = gate[i] / (1.0 + std::exp(-gate[i])) * z;
        else if (c.activation == Activation::gelu)
          up[i] = 0.5 * z * std::erfc(-z / std::numbers::sqrt2);
        else
          up[i] = 0.5 * z *
                  (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (z + 0.044715 * z * z * z)));
      }
      grow(x[t], times(up, l.down, l.down_bias));
    }
  }
  for (Row& row : x)
    row = times(normal(row, weights.norm(), weights.norm_bias(), c, centred), weights.head(),
                nullptr);
  return x;
}

// Every family and option agrees with double precision.
std::vector<Config> variety() {
  std::vector<Config> list;
  for (const Family family : {Family::gpt2, Family::llama, Family::qwen2, Family::qwen3})
    list.push_back(tiny(family));
  Config c = tiny(Family::gpt2);
  c.activation = Activation::gelu, c.tied_head = false;
  list.push_back(c);
  c = tiny(Family::llama);
  c.o_bias = c.mlp_bias = c.qkv_bias = true;
  c.rope_scaling.kind = RopeScaling::Kind::linear, c.rope_scaling.factor = 4.0f;
  list.push_back(c);
  c = tiny(Family::llama);
  c.rope_scaling = {
      .kind = RopeScaling::Kind::llama3, .factor = 8.0f, .original_max_positions = 64};
  list.push_back(c);
  c = tiny(Family::qwen3);
  c.rope_scaling = {.kind = RopeScaling::Kind::yarn,
                    .factor = 4.0f,
                    .original_max_positions = 64,
                    .attention_factor = 1.1f};
  list.push_back(c);
  return list;
}

std::vector<float> run(const WeightSet& weights, const Batch& batch, const kernels::KvView* kv,
                       Workspace& ws, Saved* saved = nullptr) {
  std::vector<float> hidden(batch.ids.size() * static_cast<std::size_t>(weights.config().hidden),
                            std::nanf(""));
  forward(weights, batch, kv, saved, ws, hidden);
  std::vector<float> out(batch.ids.size() * static_cast<std::size_t>(weights.config().vocab_size),
                         std::nanf(""));
  logits(weights, hidden, static_cast<std::int64_t>(batch.ids.size()), ws, out);
  return out;
}

TEST(Forward, AgreesWithDoublePrecisionInEveryFamily) {
  core::ThreadPool pool(2);
  for (const Config& config : variety()) {
    const auto weights = awake(config);
    const std::vector<std::int32_t> ids = some_ids(50, config.vocab_size, 5),
                                    positions = counted(0, 50), offsets{0, 50};
    Workspace ws(config, pool);
    const std::vector<float> got = run(*weights, {ids, positions, offsets}, nullptr, ws);
    const std::vector<Row> want = plain_logits(*weights, ids);
    double worst = 0.0, largest = 0.0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double exact = want[i / static_cast<std::size_t>(config.vocab_size)]
                               [i % static_cast<std::size_t>(config.vocab_size)];
      worst = std::max(worst, std::fabs(got[i] - exact));
      largest = std::max(largest, std::fabs(exact));
    }
    EXPECT_LT(worst, 1e-5 * largest) << name(config.family) << " of magnitude " << largest;
    EXPECT_GT(largest, 0.5);
  }
}

// A sequence has the same bits alone, in company, in chunks and token by token.
TEST(Forward, BitsDoNotDependOnTheCompany) {
  core::ThreadPool pool(2), single(1);
  for (const Config& config : variety()) {
    const auto weights = awake(config);
    const auto v = static_cast<std::size_t>(config.vocab_size);
    Workspace ws(config, pool);
    std::vector<std::int32_t> ids, positions, offsets{0};
    for (const std::size_t n :
         {std::size_t{3}, std::size_t{140}, std::size_t{1}, std::size_t{37}}) {
      std::ranges::copy(some_ids(n, config.vocab_size, n), std::back_inserter(ids));
      std::ranges::copy(counted(0, n), std::back_inserter(positions));
      offsets.push_back(static_cast<std::int32_t>(ids.size()));
    }
    Saved saved;
    const std::vector<float> together = run(*weights, {ids, positions, offsets}, nullptr, ws);
    ASSERT_EQ(run(*weights, {ids, positions, offsets}, nullptr, ws, &saved),
              together);  // keeping activations changes nothing
    KvCache cache(config, 4, 160);
    ASSERT_EQ(run(*weights, {ids, positions, offsets}, &cache.view(), ws), together);

    Workspace other(config,
                    single);  // the second sequence alone: chunks of 50, 7, then token by token
    KvCache own(config, 1, 150);
    for (std::size_t at = 0; at < 140;) {
      const std::size_t n = at == 0 ? 50 : at == 50 ? 7 : 1;
      const std::vector<std::int32_t> one{0, static_cast<std::int32_t>(n)};
      const Batch chunk{std::span(ids).subspan(3 + at, n), std::span(positions).subspan(3 + at, n),
                        one};
      ASSERT_TRUE(std::ranges::equal(run(*weights, chunk, &own.view(), other),
                                     std::span(together).subspan((3 + at) * v, n * v)));
      at += n;
    }
  }
}

// What cannot be meant is refused.
TEST(Forward, RefusesWhatCannotBeMeant) {
  const Config config = tiny(Family::llama);
  const auto weights = random_weights(config, 1);
  core::ThreadPool pool(1);
  Workspace ws(config, pool);
  const auto attempt = [&](std::vector<std::int32_t> ids, std::vector<std::int32_t> positions,
                           std::vector<std::int32_t> offsets) {
    try {
      run(*weights, {ids, positions, offsets}, nullptr, ws);
    } catch (const core::Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(attempt({1, 2}, {0, 1}, {0, 2}), "accepted");
  EXPECT_THAT(attempt({1, 97}, {0, 1}, {0, 2}),
              testing::HasSubstr("token id 97 is outside [0, 97)"));
  EXPECT_THAT(attempt({1, -1}, {0, 1}, {0, 2}), testing::HasSubstr("token id -1"));
  EXPECT_THAT(attempt({1, 2}, {0, 2}, {0, 2}), testing::HasSubstr("consecutive"));
  EXPECT_THAT(attempt({1}, {2048}, {0, 1}),
              testing::HasSubstr("outside the model's 2048 positions"));
  EXPECT_THAT(attempt({1, 2}, {0, 1}, {0, 3}), testing::HasSubstr("same tokens"));
}

// Weights load by name, and say what is wrong with them.
TEST(WeightSet, LoadsByNameAndNamesWhatIsWrong) {
  const Config config = tiny(Family::qwen3);
  const auto source = awake(config);
  Checkpoint checkpoint;
  checkpoint.path = "model.gguf";
  checkpoint.config = config;
  for (const Parameter& p : source->parameters()) {
    checkpoint.tensors.push_back({.name = p.name,
                                  .dtype = p.dtype,
                                  .shape = p.shape,
                                  .data = static_cast<const std::byte*>(p.data),
                                  .bytes = p.view().bytes(),
                                  .owner = source});
  }
  const auto loaded = load_weights(checkpoint);
  EXPECT_EQ(loaded->embed().data, source->embed().data);  // in place
  EXPECT_EQ(loaded->head().data, source->embed().data);   // tied
  EXPECT_EQ(loaded->parameter_count(), parameter_count(config));

  const auto complaint = [&](auto&& change) {
    Checkpoint broken = checkpoint;
    change(broken);
    try {
      load_weights(broken);
    } catch (const core::Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(complaint([](Checkpoint& c) { c.tensors.erase(c.tensors.begin() + 3); }),
              testing::HasSubstr("is missing"));
  EXPECT_THAT(complaint([](Checkpoint& c) { c.tensors[0].shape[0] = 96; }),
              testing::HasSubstr(
                  "tensor embed.weight is [96, 32] where the configuration implies [97, 32]"));
  EXPECT_THAT(
      complaint([](Checkpoint& c) { c.tensors.emplace_back().name = "layers.0.attn.sinks"; }),
      testing::HasSubstr("layers.0.attn.sinks belongs to no part of this model"));
}

}  // namespace
}  // namespace rose::model

// Count LibTorch's allocations too.
using rose::labs::allocations;

/// LibTorch's allocator, counted.
class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t n) override {
    ++allocations;
    return inner_->allocate(n);
  }
  c10::DeleterFnPtr raw_deleter() const override { return inner_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t n) const override {
    default_copy_data(to, from, n);
  }

 private:
  c10::Allocator* inner_ = c10::GetDefaultCPUAllocator();
};

namespace rose::model {
namespace {

// Decoding allocates nothing.
TEST(Forward, DecodingAllocatesNothingAfterTheFirstToken) {
  static CountingAllocator counting;
  c10::SetCPUAllocator(&counting, 100);
  const std::int64_t before_tensor = allocations;
  at::empty({16}, at::kFloat);
  ASSERT_GT(allocations.load(), before_tensor) << "the instrument does not see tensors";
  for (const Config& config : variety()) {
    core::ThreadPool pool(2);
    const auto weights = awake(config);
    Workspace ws(config, pool);
    KvCache cache(config, 1, 64);
    const std::vector<std::int32_t> ids = some_ids(40, config.vocab_size, 6),
                                    positions = counted(0, 40);
    std::vector<float> hidden(20 * static_cast<std::size_t>(config.hidden)),
        out(static_cast<std::size_t>(config.vocab_size));
    const auto step = [&](std::size_t at, std::size_t n) {
      const std::array<std::int32_t, 2> offsets{0, static_cast<std::int32_t>(n)};
      const std::span<float> rows =
          std::span(hidden).first(n * static_cast<std::size_t>(config.hidden));
      forward(*weights,
              {std::span(ids).subspan(at, n), std::span(positions).subspan(at, n), offsets},
              &cache.view(), nullptr, ws, rows);
      logits(*weights, rows.last(static_cast<std::size_t>(config.hidden)), 1, ws, out);
    };
    step(0, 20);
    step(20, 1);
    const std::int64_t before = allocations;
    for (std::size_t at = 21; at < 37; ++at) step(at, 1);
    EXPECT_EQ(allocations - before, 0) << name(config.family);
  }
}

}  // namespace
}  // namespace rose::model
