// Tests of the chapter "The forward pass on a GPU".

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
#include "labs/inference/qwen3.h"
#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/kernels/activation.h"
#include "rose/kernels/embedding.h"
#include "rose/kernels/linear.h"
#include "rose/kernels/norm.h"
#include "rose/kernels/rope.h"
#include "rose/model/files/budget.h"
#include "rose/model/gpu_forward.h"
#include "rose/model/gpu_weights.h"
#include "rose/model/kv_cache.h"
#include "rose/model/program.h"

namespace rose::model {
namespace {

// Bound the tokens per second of one conversation.
using labs::qwen3_600m;  // the shape, in labs/inference/qwen3.h

TEST(GpuModel, TokenBound) {
  const Config c = qwen3_600m();
  constexpr double bandwidth = 4.3e12;  // what a copy reaches
  const double alone = bandwidth / (2.0 * static_cast<double>(matrix_parameters(c)));
  labs::write_value("gpu-token-bound", "alone", std::round(alone / 100) * 100);
  EXPECT_EQ(matrix_parameters(c), 595'984'384);
}

// The steps, in order.
struct Recorder {
  std::string steps;
  void embed() { steps += "embed "; }
  void add_positions() { steps += "positions "; }
  void prepare_rotation() { steps += "rotation "; }
  void enter(std::int64_t layer) { steps += "| " + std::to_string(layer) + " "; }
  void norm_attention(bool add) { steps += add ? "add-norm " : "norm "; }
  void project_in() { steps += "in "; }
  void place_keys() { steps += "keys "; }
  void attend() { steps += "attend "; }
  void project_out() { steps += "out "; }
  void norm_feed_forward() { steps += "add-norm "; }
  void widen() { steps += "widen "; }
  void narrow() { steps += "narrow "; }
  void norm_final() { steps += "| add-norm"; }
};

TEST(Program, NamesEveryStepOnce) {
  Config c = qwen3_600m();
  c.layers = 2;
  Recorder recorder;
  run_forward(c, recorder);
  EXPECT_EQ(recorder.steps,
            "embed rotation | 0 norm in keys attend out add-norm widen narrow "
            "| 1 add-norm in keys attend out add-norm widen narrow | add-norm");
  c.family = Family::gpt2;
  Recorder other;
  run_forward(c, other);
  EXPECT_THAT(other.steps, testing::StartsWith("embed positions | 0"));
}

TEST(GpuModel, RefusesWhatHasNoKernelsByName) {
  const auto complaint = [](const auto& change, kernels::DType dtype = kernels::DType::bf16) {
    Config c = qwen3_600m();
    change(c);
    try {
      check_gpu_model(c, dtype);
    } catch (const core::Error& error) {
      return error.argument();
    }
    return std::string("accepted");
  };
  EXPECT_EQ(complaint([](Config&) {}), "accepted");
  EXPECT_EQ(complaint([](Config& c) { c.head_dim = 80; }), "head_dim");
  EXPECT_EQ(complaint([](Config& c) { c.ffn = 3001; }), "hidden");
  EXPECT_EQ(complaint([](Config&) {}, kernels::DType::f16), "accepted");
  EXPECT_EQ(complaint([](Config&) {}, kernels::DType::u8), "dtype");
}

TEST(GpuModel, KnowsItsBytesBeforeItIsMade) {
  const Config c = qwen3_600m();
  const auto bytes = static_cast<double>(GpuWeights::bytes(c));
  const auto norms = static_cast<double>(parameter_count(c) - matrix_parameters(c));
  EXPECT_NEAR(bytes, 2.0 * static_cast<double>(matrix_parameters(c)) + 4.0 * norms, 4 * 256 * 28);
  EXPECT_GT(GpuWorkspace::bytes(c, 8192, 1), GpuWorkspace::bytes(c, 1, 1));
  EXPECT_NEAR(static_cast<double>(GpuWeights::bytes(c, kernels::DType::f32)),
              4.0 * static_cast<double>(parameter_count(c)), 4 * 256 * 28);
}

// Perform the steps in fp32, and round after each.
class RoundedOperations {
 public:
  RoundedOperations(const WeightSet& w, const Batch& b, core::ThreadPool& pool,
                    kernels::DType type = kernels::DType::bf16)
      : w_(w),
        c_(w.config()),
        b_(b),
        pool_(pool),
        type_(type),
        t_(static_cast<std::int64_t>(b.ids.size())) {}
  std::vector<float> hidden;

  void embed() { x_ = table(b_.ids, w_.embed()); }
  void add_positions() { y_ = table(b_.positions, w_.pos_embed()), add(); }
  void prepare_rotation() {
    const RopeSetup setup = rope_setup(c_);
    cos_.resize(static_cast<std::size_t>(t_ * c_.head_dim / 2)), sin_ = cos_;
    kernels::rope_table(b_.positions, setup.inv_freq, setup.scale, cos_, sin_, pool_);
  }
  void enter(std::int64_t layer) { l_ = &w_.layers()[static_cast<std::size_t>(layer)]; }
  void norm_attention(bool pending) {
    if (pending) add();
    n_ = norm(l_->attn_norm, l_->attn_norm_bias);
  }
  void project_in() {
    q_ = times(n_, l_->q, l_->q_bias), k_ = times(n_, l_->k, l_->k_bias);
    v_ = times(n_, l_->v, l_->v_bias);
  }
  void place_keys() {
    for (auto [part, heads, weight] :
         {std::tuple(&q_, c_.heads, l_->q_norm), std::tuple(&k_, c_.kv_heads, l_->k_norm)}) {
      if (c_.qk_norm) {
        std::vector<float> to(part->size());
        kernels::rmsnorm(*part, t_ * heads, {weight, static_cast<std::size_t>(c_.head_dim)},
                         c_.norm_eps, to, {}, pool_);
        *part = rounded(std::move(to));
      }
      if (!cos_.empty()) kernels::rope(*part, t_, heads, c_.head_dim, cos_, sin_, pool_);
      *part = rounded(std::move(*part));
    }
  }
  void attend() {
    a_.resize(q_.size());
    kernels::attention(q_, k_, v_, b_.row_offsets, attention_shape(c_), a_, {}, pool_);
    a_ = rounded(std::move(a_));
  }
  void project_out() { y_ = times(a_, l_->o, l_->o_bias); }
  void norm_feed_forward() { add(), n_ = norm(l_->ffn_norm, l_->ffn_norm_bias); }
  void widen() {
    f_ = times(n_, l_->up, l_->up_bias);
    if (l_->gate.data == nullptr) {
      const bool exact = c_.activation == Activation::gelu;
      kernels::gelu(f_, f_, exact ? kernels::Gelu::exact : kernels::Gelu::tanh, pool_);
    } else {
      const std::vector<float> gate = times(n_, l_->gate, l_->gate_bias);
      for (std::size_t i = 0; i < f_.size(); ++i) {
        const float silu = gate[i] / (1.0f + std::exp(-gate[i]));
        f_[i] *= kernels::gpu::rounded(silu, type_);
      }
    }
    f_ = rounded(std::move(f_));
  }
  void narrow() { y_ = times(f_, l_->down, l_->down_bias); }
  void norm_final() { add(), hidden = norm(w_.norm(), w_.norm_bias()); }

 private:
  std::vector<float> rounded(std::vector<float> v) const {
    for (float& x : v) x = kernels::gpu::rounded(x, type_);
    return v;
  }
  std::vector<float> table(std::span<const std::int32_t> ids, const kernels::MatrixView& from) {
    std::vector<float> to(static_cast<std::size_t>(t_ * c_.hidden));
    kernels::embedding(ids, from, to, pool_);
    return rounded(std::move(to));
  }
  void add() { kernels::add(x_, y_, pool_), x_ = rounded(std::move(x_)); }
  std::vector<float> norm(const float* weight, const float* bias) {
    const auto n = static_cast<std::size_t>(c_.hidden);
    std::vector<float> to(x_.size());
    if (c_.norm == NormKind::rmsnorm) {
      kernels::rmsnorm(x_, t_, {weight, n}, c_.norm_eps, to, {}, pool_);
    } else {
      kernels::layernorm(x_, t_, {weight, n}, {bias, n}, c_.norm_eps, to, {}, {}, pool_);
    }
    return rounded(std::move(to));
  }
  std::vector<float> times(const std::vector<float>& from, const kernels::MatrixView& m,
                           const float* bias) {
    std::vector<float> to(static_cast<std::size_t>(t_ * m.rows));
    kernels::linear(from, t_, m, bias, to, pool_);
    return rounded(std::move(to));
  }

  const WeightSet& w_;
  const Config& c_;
  const Batch& b_;
  core::ThreadPool& pool_;
  kernels::DType type_;
  std::int64_t t_;
  const LayerWeights* l_ = nullptr;
  std::vector<float> x_, y_, n_, q_, k_, v_, a_, f_, cos_, sin_;
};

// Describe small models of every family.
std::vector<Config> gpu_variety() {
  Config base;
  base.vocab_size = 211, base.layers = 3, base.heads = 4, base.kv_heads = 2, base.head_dim = 64;
  base.hidden = 128, base.ffn = 192, base.max_positions = 2048;
  std::vector<Config> list;
  Config c = base;
  c.family = Family::gpt2, c.kv_heads = 4, c.norm = NormKind::layernorm;
  c.activation = Activation::gelu_tanh, c.qkv_bias = c.o_bias = c.mlp_bias = c.tied_head = true;
  c.hidden = c.heads * c.head_dim;
  list.push_back(c);
  c = base, c.family = Family::llama, c.o_bias = c.mlp_bias = c.qkv_bias = true;
  list.push_back(c);
  c = base, c.family = Family::qwen2, c.kv_heads = 1, c.qkv_bias = true, c.rope_theta = 1e6f;
  list.push_back(c);
  c = base, c.family = Family::qwen3, c.qk_norm = c.tied_head = true, c.head_dim = 128;
  c.rope_theta = 1e6f;
  list.push_back(c);
  c.head_dim = 96;  // no power of two: heads are normed apart
  list.push_back(c);
  return list;
}

/// Nothing zero or one, everything a bf16 number but the norms.
std::shared_ptr<WeightSet> awake_bf16(const Config& config) {
  auto weights = random_weights(config, 3);
  core::Rng rng(4);
  for (const Parameter& p : weights->parameters()) {
    for (float& x : p.f32()) {
      x = p.shape.size() == 2 ? 4.0f * x : x + 0.3f * rng.normal();
      if (p.name.find("norm") == std::string::npos) {
        x = kernels::gpu::rounded(x, kernels::DType::bf16);
      }
    }
  }
  return weights;
}

/// Sequences of these lengths, packed.
struct Tokens {
  std::vector<std::int32_t> ids, positions, offsets{0};

  Tokens(std::initializer_list<std::int32_t> lengths, std::int64_t vocab) {
    core::Rng rng(5);
    for (const std::int32_t n : lengths) {
      for (std::int32_t i = 0; i < n; ++i) {
        ids.push_back(static_cast<std::int32_t>(rng.below(static_cast<std::uint32_t>(vocab))));
        positions.push_back(i);
      }
      offsets.push_back(static_cast<std::int32_t>(ids.size()));
    }
  }
  Batch batch() const { return {ids, positions, offsets}; }
};

// The GPU is as near to fp32 as rounding allows.
using GpuForward = kernels::gpu::GpuTest;

double distance(std::span<const float> a, std::span<const float> b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(difference / norm);
}

TEST(GpuModel, RoundingAloneMovesLogitsLittle) {
  core::ThreadPool pool(2);
  const Config config = gpu_variety().back();
  const auto weights = awake_bf16(config);
  const Tokens tokens({20}, config.vocab_size);
  Workspace ws(config, pool);
  std::vector<float> exact(tokens.ids.size() * static_cast<std::size_t>(config.hidden));
  forward(*weights, tokens.batch(), nullptr, nullptr, ws, exact);
  const Batch batch = tokens.batch();
  RoundedOperations rounded(*weights, batch, pool);
  run_forward(config, rounded);
  EXPECT_LT(distance(rounded.hidden, exact), 0.03);
  EXPECT_GT(distance(rounded.hidden, exact), 1e-4);
}

/// All families in bf16; the first, with centred norms, and one with heads that are normed in the other types.
std::vector<std::pair<Config, kernels::DType>> gpu_cases() {
  const std::vector<Config> families = gpu_variety();
  std::vector<std::pair<Config, kernels::DType>> cases;
  for (const Config& c : families) cases.emplace_back(c, kernels::DType::bf16);
  for (const kernels::DType type : {kernels::DType::f16, kernels::DType::f32})
    for (const std::size_t i : {std::size_t{0}, std::size_t{3}})
      cases.emplace_back(families[i], type);
  return cases;
}

TEST_F(GpuForward, IsAsNearAsRoundingAllows) {
  core::ThreadPool pool(2);
  for (const auto& [config, type] : gpu_cases()) {
    const auto weights = awake_bf16(config);
    const Tokens tokens({3, 700, 1, 37}, config.vocab_size);
    const Batch batch = tokens.batch();
    const auto t = static_cast<std::int64_t>(tokens.ids.size());
    Workspace ws(config, pool);
    std::vector<float> hidden(static_cast<std::size_t>(t * config.hidden));
    const auto head = [&](std::span<const float> states) {
      std::vector<float> out(static_cast<std::size_t>(t * config.vocab_size));
      logits(*weights, states, t, ws, out);
      return out;
    };
    forward(*weights, batch, nullptr, nullptr, ws, hidden);
    const std::vector<float> exact = head(hidden);
    RoundedOperations operations(*weights, batch, pool, type);
    run_forward(config, operations);
    const double rounding = distance(head(operations.hidden), exact);
    labs::GpuPass pass(*weights, t, t, type);
    const std::vector<float> packed = pass.run(batch, nullptr);
    const double error = distance(packed, exact);
    std::printf("%s in %s: rounding %.6f, GPU %.6f\n", std::string(name(config.family)).c_str(),
                std::string(kernels::info(type).name).c_str(), rounding, error);
    EXPECT_LT(error, 1.5 * rounding + 1e-4) << name(config.family);
    const labs::DeviceCache cache(config, 4, 720, 16, 1, type);
    kernels::gpu::expect_same_bits(pass.run(batch, &cache), packed, "through a cache");
    const std::vector<std::int32_t> wanted{740, 2, 703};
    const std::vector<float> some = pass.run(batch, nullptr, wanted);
    const auto v = static_cast<std::size_t>(config.vocab_size);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      kernels::gpu::expect_same_bits(
          std::span(some).subspan(i * v, v),
          std::span(packed).subspan(static_cast<std::size_t>(wanted[i]) * v, v), "wanted rows");
    }
  }
}

// A sequence has the same bits in company, alone, in chunks and token by token.
TEST_F(GpuForward, BitsDoNotDependOnTheCompany) {
  for (const auto& [config, type] : gpu_cases()) {
    const auto weights = awake_bf16(config);
    const Tokens tokens({3, 700, 1, 37}, config.vocab_size);
    const auto v = static_cast<std::size_t>(config.vocab_size);
    labs::GpuPass pass(*weights, 800, 800, type);
    const std::vector<float> together = pass.run(tokens.batch(), nullptr);
    const labs::DeviceCache cache(config, 9, 720, 16, 1, type);
    const auto part = [&](std::size_t first, std::size_t n) {
      return std::span(together).subspan(first * v, n * v);
    };
    // The second sequence alone, in chunks, then token by token.
    for (std::size_t at = 0; at < 700;) {
      const std::size_t n = at == 0 ? 50 : at == 50 ? 7 : at == 57 ? 600 : 1;
      const std::vector<std::int32_t> one{0, static_cast<std::int32_t>(n)};
      const Batch chunk{std::span(tokens.ids).subspan(3 + at, n),
                        std::span(tokens.positions).subspan(3 + at, n), one};
      kernels::gpu::expect_same_bits(pass.run(chunk, &cache), part(3 + at, n), "alone");
      if (::testing::Test::HasFailure()) return;
      at += n;
    }
    // Eight copies of its beginning decode side by side.
    for (std::int32_t p = 0; p < 5; ++p) {
      std::vector<std::int32_t> ids(8, tokens.ids[static_cast<std::size_t>(3 + p)]),
          positions(8, p), offsets(9);
      std::iota(offsets.begin(), offsets.end(), 0);
      const std::vector<float> out = pass.run({ids, positions, offsets}, &cache, {}, 1);
      for (std::size_t s = 0; s < 8; ++s) {
        kernels::gpu::expect_same_bits(std::span(out).subspan(s * v, v),
                                       part(static_cast<std::size_t>(3 + p), 1), "a copy");
      }
    }
  }
}

}  // namespace
}  // namespace rose::model
