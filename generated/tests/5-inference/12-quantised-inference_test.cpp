// Tests of the chapter "Quantised inference".

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
#include "labs/inference/pass.h"
#include "rose/app/engine_quantization.h"
#include "rose/core/error.h"
#include "rose/core/json.h"
#include "rose/core/rng.h"
#include "rose/infer/cpu_runner.h"
#include "rose/infer/divergence.h"
#include "rose/infer/engine.h"
#include "rose/infer/gpu_runner.h"
#include "rose/kernels/packed.h"
#include "rose/model/files/checkpoint.h"
#include "rose/model/files/packed_layouts.h"
#include "rose/model/packed_weights.h"

namespace rose::model {
namespace {

// The example by hand.
TEST(QuantisedByHand, TheLargestMagnitudeBecomesMinusEight) {
  std::vector<float> row{0.9f, -0.1f, 0.4f, -0.8f, 0.05f, 0.3f, -0.6f, 0.2f};
  row.resize(32);
  const kernels::MatrixView w{
      .data = row.data(), .dtype = kernels::DType::f32, .rows = 1, .cols = 32};
  const auto packed =
      kernels::pack_matrix(w, kernels::gpu::WeightFormat::int4, 32, core::default_pool());
  EXPECT_FLOAT_EQ(packed.scales[0], -0.9f / 8.0f);
  EXPECT_EQ(packed.data[0], 0x90);  // 0.9 is -8, stored as 0; -0.1 is 1, stored as 9
  labs::write_value("test-packed-example", "step", std::abs(packed.scales[0]));
  labs::write_value("test-packed-example", "other", 0.9 / 7.0);
  labs::write_value("test-packed-example", "int8-bits", 8.0 + 32.0 / 128.0);
  labs::write_value("test-packed-example", "int4-bits", 4.0 + 32.0 / 128.0);
}

// A small model to quantise.
using kernels::gpu::WeightFormat;
constexpr std::array formats{WeightFormat::int8, WeightFormat::int4, WeightFormat::fp8_e4m3};

Config small_config() {
  Config c;
  c.family = Family::qwen3;
  c.qk_norm = c.tied_head = true;
  c.vocab_size = 193, c.layers = 2, c.heads = 4, c.kv_heads = 2, c.head_dim = 64;
  c.hidden = 128, c.ffn = 192, c.max_positions = 1024;
  return c;
}

std::shared_ptr<const WeightSet> small_weights() {
  auto weights = random_weights(small_config(), 3);
  for (const Parameter& p : weights->parameters())
    for (float& x : p.f32()) x *= p.shape.size() == 2 ? 4.0f : 1.0f;
  return weights;
}

std::shared_ptr<const WeightSet> packed(const std::shared_ptr<const WeightSet>& from,
                                        WeightFormat format, bool plain = true) {
  return pack_weights(
      from, {.format = format, .group = format == WeightFormat::fp8_e4m3 ? 0 : 64, .plain = plain});
}

std::vector<std::int32_t> random_ids(std::size_t n, std::uint64_t seed) {
  core::Rng rng(seed);
  std::vector<std::int32_t> ids(n);
  for (auto& id : ids) id = static_cast<std::int32_t>(rng.below(193));
  return ids;
}

// Pack a model, and refuse what makes no sense.
TEST(PackedWeights, KeepWhatTheBitsStandFor) {
  const auto weights = small_weights();
  EXPECT_EQ(pack_weights(weights, {}), weights);
  for (const WeightFormat format : formats) {
    const auto both = packed(weights, format), few = packed(weights, format, false);
    EXPECT_TRUE(both->plain());
    EXPECT_FALSE(few->plain());
    EXPECT_THAT(few->quantization(), testing::StartsWith(std::string(kernels::name(format))));
    EXPECT_LT(few->bytes(), weights->bytes() / 2);
    const LayerWeights& layer = both->layers()[1];
    ASSERT_NE(layer.packed.gate, nullptr);
    std::vector<float> row(128);
    kernels::unpack_row(*layer.packed.gate, 5, row.data());
    const auto* const plain = reinterpret_cast<const kernels::bf16*>(layer.gate.row(5));
    for (std::size_t k = 0; k < row.size(); ++k) EXPECT_EQ(kernels::to_float(plain[k]), row[k]);
    EXPECT_EQ(both->embed().dtype, kernels::DType::f32);
    EXPECT_EQ(both->layers()[0].attn_norm, weights->layers()[0].attn_norm);
    EXPECT_EQ(few->layers()[0].q.data, nullptr);
    EXPECT_THROW(packed(both, WeightFormat::int8), core::Error);
    EXPECT_THROW(require_same_packing(*both, *weights), core::Error);
    EXPECT_NO_THROW(require_same_packing(*both, *packed(weights, format)));
  }
}

TEST(PackedWeights, AreNotMultipliedOnACpu) {
  const auto few = packed(small_weights(), WeightFormat::int8, false);
  Workspace ws(few->config());
  const std::vector<std::int32_t> ids{1, 2}, positions{0, 1}, offsets{0, 2};
  std::vector<float> hidden(2 * 128);
  EXPECT_THROW(forward(*few, {ids, positions, offsets}, nullptr, nullptr, ws, hidden), core::Error);
}

TEST(PackedWeights, ReadTheNamesOfFormats) {
  EXPECT_EQ(parse_quantization("int4").group, 128);
  EXPECT_EQ(parse_quantization("fp8").group, 0);
  EXPECT_EQ(parse_quantization("int8", 0).group, 0);
  EXPECT_FALSE(parse_quantization("none").format);
  EXPECT_THROW(parse_quantization("int4", 48), core::Error);
  EXPECT_THROW(parse_quantization("int3"), core::Error);
  try {
    parse_quantization("gptq");
    FAIL();
  } catch (const core::Error& error) {
    EXPECT_THAT(error.hint(), testing::HasSubstr("leave the option away"));
  }
}

}  // namespace
}  // namespace rose::model

namespace rose::infer {
namespace {

// More bits lose less.
TEST(QuantisedDivergence, FallsWithTheBits) {
  const auto weights = model::small_weights();
  const auto ids = model::random_ids(160, 1);
  const Variant base{.weights = weights.get()};
  const Divergence itself = diverge(base, base, ids, 100);
  EXPECT_EQ(itself.tokens, 158);  // of the first 100 tokens 99 are predicted, of the rest 59
  EXPECT_EQ(itself.mean_kl, 0.0);
  EXPECT_EQ(itself.max_logit, 0.0);
  EXPECT_EQ(itself.same_choice, 1.0);
  EXPECT_EQ(itself.perplexity, itself.base_perplexity);
  const auto of = [&](kernels::gpu::WeightFormat format) {
    const auto few = model::packed(weights, format);
    return diverge(base, {.weights = few.get()}, ids);
  };
  const Divergence int8 = of(kernels::gpu::WeightFormat::int8),
                   int4 = of(kernels::gpu::WeightFormat::int4),
                   fp8 = of(kernels::gpu::WeightFormat::fp8_e4m3);
  for (const Divergence& d : {int8, fp8, int4}) std::printf("%s\n", d.describe().c_str());
  EXPECT_GT(int8.mean_kl, 0.0);
  EXPECT_LT(int8.mean_kl, fp8.mean_kl);
  EXPECT_LT(fp8.mean_kl, int4.mean_kl);
  EXPECT_LE(int8.mean_kl, int8.max_kl);
  EXPECT_GT(int8.same_choice, 0.9);
  EXPECT_LT(int8.mean_kl, 1e-3);
  EXPECT_LT(int4.mean_kl, 0.1);
  EXPECT_THROW(diverge(base, base, std::span(ids).first(1)), core::Error);
}

TEST(QuantisedCache, LosesLittleAndTheScaleMatters) {
  const auto weights = model::small_weights();
  const auto ids = model::random_ids(160, 1);
  const Variant base{.weights = weights.get()};
  const auto with = [&](KvScales scales) {
    return diverge(base, {weights.get(), kernels::DType::u8, std::move(scales)}, ids);
  };
  const KvScales measured = measure_kv_scales(*weights, ids);
  ASSERT_EQ(measured.k.size(), 4u);
  const Divergence plain = with({}), scaled = with(measured),
                   wrong = with({std::vector(4, 1e-3f), std::vector(4, 1e-3f)});
  for (const Divergence& d : {plain, scaled, wrong}) std::printf("%s\n", d.describe().c_str());
  EXPECT_GT(scaled.mean_kl, 0.0);
  EXPECT_LT(scaled.mean_kl, 0.02);
  EXPECT_GT(wrong.mean_kl, 4.0 * scaled.mean_kl);  // keys beyond 0.448 are cut off
}

// A request's answer does not depend on its company, in any mode.
struct Answered {
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs;
  bool operator==(const Answered&) const = default;
};

std::shared_ptr<Answered> ask(Engine& engine, std::vector<std::int32_t> prompt,
                              std::uint64_t seed = 7) {
  Request r;
  r.prompt = std::move(prompt);
  r.sampling.temperature = 0.8f;
  r.sampling.seed = seed;
  r.sampling.max_tokens = 10;
  r.sampling.ignore_eos = true;
  r.sampling.logprobs = 1;
  auto answer = std::make_shared<Answered>();
  r.on_event = [answer](const Event& e) {
    answer->tokens.insert(answer->tokens.end(), e.tokens.begin(), e.tokens.end());
    answer->logprobs.insert(answer->logprobs.end(), e.logprobs.begin(), e.logprobs.end());
  };
  engine.submit(std::move(r));
  return answer;
}

/// Alone in a fresh engine; then amid others and in chunks; then once more, with its prefix cached.
void expect_one_answer(const std::function<std::unique_ptr<Runner>()>& make) {
  const auto prompt = model::random_ids(75, 4);
  Engine alone(make(), {.prefix_caching = false});
  const auto first = ask(alone, prompt);
  alone.run();
  ASSERT_EQ(first->tokens.size(), 10u);
  Engine busy(make(), {.max_chunk = 13});
  std::vector<std::shared_ptr<Answered>> others;
  for (std::uint64_t i = 0; i < 5; ++i)
    others.push_back(ask(busy, model::random_ids(5 + 20 * i, i), i));
  const auto amid = ask(busy, prompt);
  for (std::uint64_t i = 0; i < 4; ++i)
    others.push_back(ask(busy, model::random_ids(9 * i + 1, 20 + i), i));
  busy.run();
  EXPECT_EQ(*amid, *first);
  const auto warm = ask(busy, prompt);
  busy.run();
  EXPECT_EQ(*warm, *first);
  EXPECT_GT(busy.control().statistics().prefix.tokens_found, 0);
  EXPECT_THAT(std::string(busy.control().runner()), testing::HasSubstr(", "));
}

TEST(QuantisedInvariance, HoldsInEveryMode) {
  core::ThreadPool pool(2);
  const auto weights = model::small_weights();
  for (const auto format : model::formats) {
    const auto few = model::packed(weights, format);
    expect_one_answer([&] { return make_cpu_runner(few, {.max_sequences = 8}, pool); });
  }
  const KvScales scales = measure_kv_scales(*weights, model::random_ids(50, 9));
  expect_one_answer([&] {
    return make_cpu_runner(
        weights,
        {.max_sequences = 8, .kv_dtype = kernels::DType::u8, .kv_scales = scales, .poison = true},
        pool);
  });
}

// Pages travel only between caches that agree.
TEST(QuantisedCache, PagesTravelOnlyBetweenCachesThatAgree) {
  core::ThreadPool pool(2);
  const auto weights = model::small_weights();
  const KvScales scales = measure_kv_scales(*weights, model::random_ids(50, 9));
  const auto make = [&](const KvScales& s) {
    return make_cpu_runner(
        weights, {.max_sequences = 4, .kv_dtype = kernels::DType::u8, .kv_scales = s}, pool);
  };
  const auto prompt = model::random_ids(64, 2);
  Engine from(make(scales));
  const auto answer = ask(from, prompt);
  from.run();
  const KvExport pages = from.control().export_prefix(prompt);
  EXPECT_EQ(pages.tokens.size(), 64u);
  EXPECT_EQ(pages.page_bytes, 2 * 2 * 2 * 64 * 16);  // keys and values, layers, heads, width, slots
  Engine same(make(scales)), other(make({}));
  EXPECT_EQ(same.control().import_prefix(pages), 4);
  EXPECT_THROW(other.control().import_prefix(pages), core::Error);
  EXPECT_THROW(from.control().update_weights(model::packed(weights, model::formats[0])),
               core::Error);
  KvScales few = scales;
  few.k.pop_back();
  EXPECT_THROW(make(few), core::Error);
}

}  // namespace
}  // namespace rose::infer

namespace rose::model {
namespace {

// A GPU multiplies by what the bits stand for.
using GpuQuantised = kernels::gpu::GpuTest;

/// fp32 weights that hold what the packed ones stand for.
std::shared_ptr<const WeightSet> unpacked(const WeightSet& from) {
  auto to = random_weights(from.config(), 1);
  for (const Parameter& p : to->parameters()) {
    const Parameter& source = from.parameter(p.name);
    const std::int64_t cols = p.shape.back();
    for (std::int64_t r = 0; r < p.elements / cols; ++r) {
      float* const row = p.f32().data() + r * cols;
      if (source.packed != nullptr)
        kernels::unpack_row(*source.packed, r, row);
      else
        std::copy_n(static_cast<const float*>(source.data) + r * cols, cols, row);
    }
  }
  return to;
}

TEST_F(GpuQuantised, HasTheBitsOfTheUnpackedModel) {
  std::vector<Config> families(3, small_config());
  families[1].family = Family::llama, families[1].qk_norm = false;
  families[1].o_bias = families[1].mlp_bias = families[1].qkv_bias = true;
  families[2].family = Family::gpt2, families[2].qk_norm = false, families[2].kv_heads = 4;
  families[2].norm = NormKind::layernorm, families[2].hidden = 256;
  families[2].activation = Activation::gelu_tanh;
  families[2].qkv_bias = families[2].o_bias = families[2].mlp_bias = true;
  for (const Config& config : families) {
    auto weights = random_weights(config, 3);
    for (const Parameter& p : weights->parameters())
      for (float& x : p.f32()) x = p.shape.size() == 2 ? 4.0f * x : x + 0.1f;
    for (const WeightFormat format : formats) {
      const auto few = packed(weights, format, false);
      labs::GpuPass quantised(*few, 256, 256), plain(*unpacked(*few), 256, 256);
      EXPECT_TRUE(quantised.weights().packed());
      EXPECT_LT(GpuWeights::bytes(*few), GpuWeights::bytes(config));
      for (const std::size_t n : {std::size_t{200}, std::size_t{17}, std::size_t{1}}) {
        const auto ids = random_ids(n, n);
        std::vector<std::int32_t> positions(n);
        std::iota(positions.begin(), positions.end(), 0);
        const std::vector<std::int32_t> offsets{0, static_cast<std::int32_t>(n)};
        kernels::gpu::expect_same_bits(quantised.run({ids, positions, offsets}, nullptr),
                                       plain.run({ids, positions, offsets}, nullptr),
                                       std::string(kernels::name(format)));
      }
    }
  }
}

}  // namespace
}  // namespace rose::model

namespace rose::infer {
namespace {

// One answer on a GPU, in every mode.
using GpuQuantisedEngine = kernels::gpu::GpuTest;

TEST_F(GpuQuantisedEngine, GivesOneAnswerInEveryMode) {
  const auto weights = model::small_weights();
  const KvScales scales = measure_kv_scales(*weights, model::random_ids(50, 9));
  const GpuRunnerOptions options{.tokens = 256, .sequences = 8, .pages = 400};
  for (const auto format : model::formats) {
    const auto few = model::packed(weights, format, false);
    for (const bool graphs : {true, false}) {
      GpuRunnerOptions o = options;
      o.graphs = graphs;
      expect_one_answer([&] { return make_gpu_runner(few, o); });
      o.kv_dtype = kernels::DType::u8;
      o.kv_scales = scales;
      expect_one_answer([&] { return make_gpu_runner(few, o); });
    }
  }
  EXPECT_THROW(
      make_gpu_runner(weights, {.tokens = 64, .sequences = 2, .kv_dtype = kernels::DType::f16}),
      core::Error);
}

TEST_F(GpuQuantisedEngine, AnEightBitCacheMovesLogprobsLittle) {
  const auto weights = model::small_weights();
  const auto prompt = model::random_ids(300, 4);
  const auto greedy = [&](kernels::DType kv, const KvScales& scales) {
    Engine engine(make_gpu_runner(
        weights,
        {.tokens = 512, .sequences = 4, .pages = 400, .kv_dtype = kv, .kv_scales = scales}));
    const auto answer = ask(engine, prompt);
    engine.run();
    return *answer;
  };
  const Answered wide = greedy(kernels::DType::bf16, {}),
                 narrow = greedy(kernels::DType::u8, measure_kv_scales(*weights, prompt));
  EXPECT_NEAR(narrow.logprobs.front(), wide.logprobs.front(), 0.5f);
  EXPECT_NE(narrow.logprobs.front(), wide.logprobs.front());
}

}  // namespace
}  // namespace rose::infer
