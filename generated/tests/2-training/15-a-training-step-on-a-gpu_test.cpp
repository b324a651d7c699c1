// Tests of the chapter "A training step on a GPU".

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
#include "labs/training/gpu_steps.h"
#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/kernels/cross_entropy.h"
#include "rose/kernels/gpu/graph.h"
#include "rose/kernels/gpu/stopwatch.h"
#include "rose/model/backward.h"
#include "rose/model/forward.h"
#include "rose/model/gpu_backward.h"
#include "rose/trainer/cpu_compute.h"
#include "rose/trainer/gpu_compute.h"

namespace rose::model {
namespace {

// Operations of a training step.
TEST(TrainingBudget, CountsOperationsPerToken) {
  const double gpt2 = labs::training_flops(labs::gpt2_124m(), 1024);
  const double qwen3 = labs::training_flops(labs::qwen3_600m(), 4096);
  labs::write_value("test-training-budget", "gpt2", std::round(gpt2 / 1e6));
  labs::write_value("test-training-budget", "qwen3", std::round(qwen3 / 1e7) / 100);
  EXPECT_EQ(gpt2, 6.0 * (12 * 12 * 768 * 768 + 50304 * 768) + 6.0 * 12 * 768 * 1024);
  EXPECT_NEAR(qwen3 / 1e9, 4.99, 0.01);
}

// Small models of every family, and a ragged batch.
std::vector<Config> training_variety() {
  Config base;
  base.vocab_size = 211, base.layers = 3, base.heads = 4, base.kv_heads = 2, base.head_dim = 64;
  base.hidden = 128, base.ffn = 192, base.max_positions = 2048;
  std::vector<Config> list;
  Config c = base;
  c.family = Family::gpt2, c.kv_heads = 4, c.norm = NormKind::layernorm;
  c.activation = Activation::gelu_tanh, c.qkv_bias = c.o_bias = c.mlp_bias = c.tied_head = true;
  c.hidden = c.heads * c.head_dim;
  list.push_back(c);
  c = base, c.family = Family::llama;
  list.push_back(c);
  c = base, c.family = Family::qwen2, c.qkv_bias = true, c.rope_theta = 1e6f;
  list.push_back(c);
  c = base, c.family = Family::qwen3, c.qk_norm = c.tied_head = true, c.head_dim = 128;
  c.rope_theta = 1e6f;
  list.push_back(c);
  c.head_dim = 96;  // no power of two: normed and turned apart
  list.push_back(c);
  return list;
}

/// Nothing zero or one; matrices and biases are bf16 numbers.
std::shared_ptr<WeightSet> awake_weights(const Config& config) {
  auto weights = random_weights(config, 3);
  core::Rng rng(4);
  for (const Parameter& p : weights->parameters()) {
    for (float& x : p.f32()) {
      x = p.shape.size() == 2 ? 2.0f * x : x + 0.1f * rng.normal();
      if (p.name.find("norm") == std::string::npos) {
        x = kernels::gpu::rounded(x, kernels::DType::bf16);
      }
    }
  }
  return weights;
}

// A ragged batch, and its gradients on the CPU.

/// Sequences of these lengths, packed; some tokens have no target.
struct Ragged {
  std::vector<std::int32_t> ids, positions, offsets{0}, targets;
  std::vector<float> weights;

  Ragged(std::initializer_list<std::int32_t> lengths, std::int64_t vocab) {
    core::Rng rng(5);
    const auto word = [&] {
      return static_cast<std::int32_t>(rng.below(static_cast<std::uint32_t>(vocab)));
    };
    for (const std::int32_t n : lengths) {
      for (std::int32_t i = 0; i < n; ++i) {
        ids.push_back(word());
        targets.push_back(rng.below(5) == 0 ? -1 : word());
        positions.push_back(i);
        weights.push_back(0.5f + rng.uniform());
      }
      offsets.push_back(static_cast<std::int32_t>(ids.size()));
    }
  }
  Batch batch() const { return {ids, positions, offsets}; }
  GpuExamples examples(bool weighted) const {
    return {batch(), targets,
            weighted ? std::span<const float>(weights) : std::span<const float>()};
  }
};

// The gradients on the CPU, moved or not.

/// Moves every number by a random part of itself, at most `relative`.
void move(std::span<float> values, float relative, core::Rng& rng) {
  for (float& x : values) x *= 1.0f + relative * (2.0f * rng.uniform() - 1.0f);
}

/// The CPU's gradients of scale * sum of losses, with everything between the operations moved when `relative` is not 0.
std::vector<float> gradients_on_cpu(const WeightSet& weights, const Ragged& r, float scale,
                                    Gradients& g, float relative = 0) {
  const Config& c = weights.config();
  const auto t = static_cast<std::int64_t>(r.ids.size());
  core::ThreadPool pool(2);
  Workspace work(c, pool);
  BackwardWorkspace back(c, pool);
  Saved saved;
  std::vector<float> hidden(static_cast<std::size_t>(t * c.hidden)), d_hidden(hidden.size()),
      scores(static_cast<std::size_t>(t * c.vocab_size)), losses(r.ids.size()), scratch;
  forward(weights, r.batch(), nullptr, &saved, work, hidden);
  core::Rng rng(6);
  for (const SavedLayer& l : saved.layers) {
    for (const std::span<float> kept :
         {l.input, l.attn_normed, l.q, l.k, l.v, l.q_raw, l.k_raw, l.attn_out, l.middle,
          l.ffn_normed, l.gate, l.up, l.activated})
      move(kept, relative, rng);
  }
  logits(weights, hidden, t, work, scores);
  kernels::cross_entropy(scores, t, r.targets, scale, losses, pool, scratch);
  head_backward(weights, hidden, t, scores, d_hidden, g, back);
  backward(weights, r.batch(), saved, d_hidden, g, back);
  return losses;
}

/// The weights, each moved by at most `relative` of itself.
std::shared_ptr<WeightSet> perturbed(const WeightSet& weights, float relative) {
  auto moved = random_weights(weights.config(), 1);
  core::Rng rng(6);
  for (const Parameter& p : weights.parameters()) {
    const std::span<float> to = moved->parameter(p.name).f32(), from = p.f32();
    std::ranges::copy(from, to.begin());
    move(to, relative, rng);
  }
  return moved;
}

double distance_of(std::span<const float> a, std::span<const float> b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(difference / (norm > 0 ? norm : 1));
}

// Gradients of queries respond more than others.
TEST(GpuTraining, GradientsOfQueriesRespondMost) {
  const Config config = training_variety().front();
  const auto weights = awake_weights(config);
  const Ragged r({3, 150, 1, 37}, config.vocab_size);
  Gradients g(*weights), moved(*weights);
  gradients_on_cpu(*weights, r, 0.01f, g);
  gradients_on_cpu(*perturbed(*weights, 0x1p-9f), r, 0.01f, moved, 0x1p-9f);
  const auto response = [&](const char* name) {
    return distance_of(moved.find(name), g.find(name));
  };
  const double queries = response("layers.2.attn.q.weight"),
               down = response("layers.2.ffn.down.weight");
  std::printf("queries %.2e, down %.2e\n", queries, down);
  EXPECT_GT(queries, 2 * down);
  EXPECT_GT(down, 0x1p-12);
}

// Every gradient agrees with the CPU's.
using GpuTrainingTest = kernels::gpu::GpuTest;

/// All gradients, in the order of the layout's tensors.
std::vector<std::vector<float>> gradients_of(const GpuParameters& parameters) {
  std::vector<std::vector<float>> all;
  for (const FlatTensor& tensor : parameters.layout().tensors()) {
    all.emplace_back(static_cast<std::size_t>(tensor.elements));
    parameters.download_gradient(tensor, all.back());
  }
  return all;
}

TEST_F(GpuTrainingTest, GradientsAgreeWithTheCpu) {
  for (const Config& config : training_variety()) {
    const auto weights = awake_weights(config);
    const Ragged r({3, 700, 1, 37}, config.vocab_size);
    const auto t = static_cast<std::int64_t>(r.ids.size());
    Gradients g(*weights);
    const std::vector<float> expected_losses = gradients_on_cpu(*weights, r, 0.01f, g);
    constexpr float step = 0x1p-9f;  // half of one of bf16
    Gradients moved(*weights);
    gradients_on_cpu(*perturbed(*weights, step), r, 0.01f, moved, step);
    std::vector<double> sensitivity;
    for (std::size_t i = 0; i < weights->parameters().size(); ++i)
      sensitivity.push_back(distance_of(moved.parameter(i), g.parameter(i)));
    for (const kernels::DType dtype :
         {kernels::DType::f32, kernels::DType::bf16, kernels::DType::f16}) {
      const GpuParameters parameters(*weights, dtype);
      GpuTraining training(parameters, {.shape = {.tokens = t, .head_rows = 300, .dtype = dtype}});
      training.zero_gradients();
      training.accumulate(r.examples(false), 0.01f);
      std::vector<float> losses(r.ids.size()), lse(r.ids.size());
      training.losses(losses, lse);  // known before the way back is done
      kernels::gpu::synchronize(training.stream());
      const bool exact = dtype == kernels::DType::f32;
      const double steps = exact ? 0 : dtype == kernels::DType::f16 ? 0x1p-12 / step : 1;
      const double to_losses = distance_of(losses, expected_losses);
      EXPECT_LT(to_losses, exact ? 1e-5 : 0.02) << name(config.family);
      const auto have = gradients_of(parameters);
      double worst = 0;
      std::string where;
      for (std::size_t i = 0; i < have.size(); ++i) {
        const std::string& tensor = weights->parameters()[i].name;
        if (tensor.find("attn.k.bias") != std::string::npos) continue;  // zero in exact arithmetic
        const double gap = distance_of(have[i], g.parameter(i));
        const double share = gap / (1e-4 + 4 * steps * sensitivity[i]);
        EXPECT_LT(share, 1.0) << name(config.family) << ' ' << tensor << ": " << gap;
        if (share > worst) worst = share, where = tensor;
      }
      std::printf("%s %s: losses %.2e, worst gradient %.2f of its bound (%s)\n",
                  std::string(name(config.family)).c_str(),
                  std::string(kernels::info(dtype).name).c_str(), to_losses, worst, where.c_str());
    }
  }
}

// Recomputing, repeating and chunking change no bit.
TEST_F(GpuTrainingTest, RecomputingAndRepeatingChangeNoBit) {
  for (const Config& config : training_variety()) {
    const auto weights = awake_weights(config);
    const Ragged r({3, 700, 1, 37}, config.vocab_size);
    const auto t = static_cast<std::int64_t>(r.ids.size());
    const GpuParameters parameters(*weights, kernels::DType::bf16);
    std::vector<std::vector<float>> first;
    for (const Recompute level :
         {Recompute::nothing, Recompute::selective, Recompute::blocks, Recompute::nothing}) {
      GpuTraining training(
          parameters,
          {.shape = {.tokens = t + 50, .head_rows = 300, .recompute = level}, .z = 1e-3f});
      training.zero_gradients();
      training.accumulate(r.examples(true), 0.01f);
      kernels::gpu::synchronize(training.stream());
      const auto have = gradients_of(parameters);
      if (first.empty()) first = have;
      for (std::size_t i = 0; i < have.size(); ++i) {
        kernels::gpu::expect_same_bits(have[i], first[i], parameters.layout().tensors()[i].name);
      }
      // a second micro-batch is added whole: twice the gradient, to the bit
      training.accumulate(r.examples(true), 0.01f);
      kernels::gpu::synchronize(training.stream());
      const auto twice = gradients_of(parameters);
      for (std::size_t i = 0; i < have.size(); ++i) {
        std::vector<float> doubled = first[i];
        for (float& x : doubled) x *= 2;
        kernels::gpu::expect_same_bits(twice[i], doubled, "twice");
      }
      if (HasFailure()) return;
    }
  }
}

TEST_F(GpuTrainingTest, TheForwardPassIsTheOneThatServes) {
  for (const Config& config : training_variety()) {
    const auto weights = awake_weights(config);
    const Ragged r({3, 700, 1, 37}, config.vocab_size);
    const auto t = static_cast<std::int64_t>(r.ids.size());
    const auto v = static_cast<std::size_t>(config.vocab_size);
    const GpuParameters parameters(*weights, kernels::DType::bf16);
    GpuTraining training(parameters, {.shape = {.tokens = t, .head_rows = t}});
    training.evaluate(r.examples(false));
    kernels::gpu::synchronize(training.stream());
    const std::vector<float> trained = training.logits();
    labs::GpuPass pass(*weights, 800, 800);
    kernels::gpu::expect_same_bits(pass.run(r.batch(), nullptr), trained, "packed");
    const labs::DeviceCache cache(config, 4, 720);
    for (std::size_t at = 0; at < 700;) {  // the second sequence, in chunks through a cache
      const std::size_t n = at == 0 ? 50 : at == 50 ? 7 : at == 57 ? 640 : 1;
      const std::vector<std::int32_t> one{0, static_cast<std::int32_t>(n)};
      const Batch chunk{std::span(r.ids).subspan(3 + at, n),
                        std::span(r.positions).subspan(3 + at, n), one};
      kernels::gpu::expect_same_bits(pass.run(chunk, &cache),
                                     std::span(trained).subspan((3 + at) * v, n * v), "chunk");
      at += n;
    }
    if (HasFailure()) return;
  }
}

// The plan is what is allocated.
TEST_F(GpuTrainingTest, TakesTheMemoryThatIsPlanned) {
  const Config config = training_variety().back();
  const auto weights = awake_weights(config);
  const GpuParameters parameters(*weights, kernels::DType::bf16);
  const Ragged r({2048, 2048, 2048, 2048}, config.vocab_size);
  const GpuTrainingOptions options{.shape = {.tokens = 8192, .head_rows = 4096}};
  {
    GpuTraining first(parameters, options);  // the library's own memory comes with its first use
    first.zero_gradients();
    first.accumulate(r.examples(false), 1.0f);
    kernels::gpu::synchronize(first.stream());
  }
  const std::size_t before = kernels::gpu::device_memory().free;
  GpuTraining training(parameters, options);
  for (int i = 0; i < 2; ++i) training.accumulate(r.examples(false), 1.0f);
  kernels::gpu::synchronize(training.stream());
  const std::size_t taken = before - kernels::gpu::device_memory().free;
  const std::size_t planned = GpuTraining::bytes(config, options, r.offsets, true);
  std::printf("planned %zu, taken %zu bytes\n", planned, taken);
  EXPECT_EQ(planned, training.bytes());
  constexpr std::size_t unit = std::size_t{2} << 20;  // in which the driver hands out memory
  EXPECT_GE(taken + unit, planned);
  EXPECT_LE(taken, planned + 8 * unit);
}

}  // namespace
}  // namespace rose::model

namespace rose::trainer {
namespace {

// Updates follow the CPU, state goes on, fp16 finds its scale.
using GpuComputeTest = kernels::gpu::GpuTest;

struct Walk {
  std::vector<double> losses, norms;
  int skipped = 0;
};

/// Updates from `first` on over one batch.
Walk walk(Compute& compute, const model::Ragged& r, std::int64_t first, int updates) {
  Walk w;
  const MicroBatch batch{r.ids, r.positions, r.offsets, r.targets, r.weights};
  const double scale = 1.0 / total_weight(batch);
  for (std::int64_t u = first; u < first + updates; ++u) {
    compute.zero_gradients();
    w.losses.push_back(compute.accumulate(batch, scale).mean());
    const double norm = compute.gradient_norm();
    if (!std::isfinite(norm)) {
      compute.skip();
      ++w.skipped;
      continue;
    }
    w.norms.push_back(norm);
    compute.update({.update = u, .rate = 1e-3, .scale = norm > 1 ? 1 / norm : 1.0});
  }
  return w;
}

std::map<std::string, std::vector<std::byte>> state_of(Compute& compute) {
  std::map<std::string, std::vector<std::byte>> all;
  compute.visit([&](const StateTensor& tensor) {
    std::vector<std::byte>& bytes = all[tensor.role + " " + tensor.name];
    bytes.resize(tensor.bytes);
    tensor.read(bytes);
  });
  return all;
}

// Ten updates, in three formats.
TEST_F(GpuComputeTest, FollowsTheCpuAndGoesOn) {
  for (const Method method : {Method::adamw, Method::muon}) {
    const model::Config config = model::training_variety().back();
    const model::Ragged r({3, 300, 1, 37}, config.vocab_size);
    ComputeOptions options;
    options.optimizer.method = method;
    options.z_loss = 1e-4f;
    CpuCompute cpu(model::awake_weights(config), options);
    const Walk expected = walk(cpu, r, 1, 10);
    EXPECT_LT(expected.losses.back(), expected.losses.front());
    for (const kernels::DType dtype :
         {kernels::DType::f32, kernels::DType::bf16, kernels::DType::f16}) {
      if (method == Method::muon && dtype == kernels::DType::f16) continue;  // refused
      const GpuComputeOptions gpu{.tokens = 400, .head_rows = 128, .dtype = dtype};
      GpuCompute whole(model::awake_weights(config), options, gpu);
      const Walk have = walk(whole, r, 1, 10);
      const bool exact = dtype == kernels::DType::f32 && method == Method::adamw;
      double worst = 0;
      for (std::size_t i = 0; i < have.losses.size(); ++i)
        worst = std::max(worst, std::abs(have.losses[i] / expected.losses[i] - 1));
      std::printf("%s %s: losses within %.1e, %d skipped\n",
                  method == Method::adamw ? "AdamW" : "Muon",
                  std::string(kernels::info(dtype).name).c_str(), worst, have.skipped);
      EXPECT_LT(worst, exact ? 1e-4 : 0.02);
      EXPECT_EQ(have.skipped, 0);
      GpuCompute first(model::awake_weights(config), options, gpu);
      walk(first, r, 1, 4);
      GpuCompute second(model::random_weights(config, 9), options, gpu);
      const auto state = state_of(first);
      second.visit([&](const StateTensor& t) { t.write(state.at(t.role + " " + t.name)); });
      walk(second, r, 5, 6);
      EXPECT_EQ(state_of(second), state_of(whole)) << "resumed";
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace rose::trainer
