// Tests of the chapter "Fused layers, forward and back".

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
#include "labs/training/gpu_steps.h"
#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/kernels/cross_entropy.h"
#include "rose/kernels/gpu/elementwise.h"
#include "rose/kernels/gpu/graph.h"
#include "rose/kernels/gpu/linear_backward.h"
#include "rose/kernels/gpu/norm.h"
#include "rose/kernels/gpu/rope.h"
#include "rose/kernels/gpu/stopwatch.h"
#include "rose/kernels/gpu/turn_heads.h"
#include "rose/model/backward.h"
#include "rose/model/forward.h"
#include "rose/model/gpu_backward.h"
#include "rose/trainer/gpu_compute.h"

namespace rose::kernels::gpu {
namespace {

// Slices depend on the shape alone.
TEST(BackwardProducts, AreCutWhereOutputsAreFew) {
  const auto slices = [](std::int64_t m, std::int64_t n, std::int64_t k) {
    return backward_slices({.product = BackwardProduct::weight, .m = m, .n = n, .k = k});
  };
  EXPECT_EQ(slices(65536, 768, 768), 8);
  EXPECT_EQ(slices(65536, 3072, 768), 2);
  EXPECT_EQ(slices(8192, 50304, 768), 1);
  EXPECT_EQ(slices(1023, 768, 768), 1);
  EXPECT_EQ(backward_slices({.m = 65536, .n = 768, .k = 768}), 1);
}

using GpuBackwardProducts = GpuTest;

TEST_F(GpuBackwardProducts, AreAsNearAsRoundingAllows) {
  constexpr std::int64_t m = 4096, n = 192, k = 136;
  for (const DType dtype : {DType::bf16, DType::f32, DType::f16}) {
    const auto values = [&](std::int64_t count, std::uint64_t seed) {
      std::vector<float> v = random_values(count, seed);
      for (float& x : v) x = rounded(x, dtype);
      return v;
    };
    const std::vector<float> dy = values(m * n, 1), x = values(m * k, 2), w = values(n * k, 3);
    const DeviceMatrix on_dy = DeviceMatrix::of(dy, m, n, dtype, {.gap = 8}),
                       on_x = DeviceMatrix::of(x, m, k, dtype),
                       on_w = DeviceMatrix::of(w, n, k, dtype);
    const DeviceMatrix dx(m, k, dtype);
    DeviceMatrix dw = DeviceMatrix::of(std::vector<float>(n * k, 1.0f), n, k, DType::f32);
    DeviceMatrix db = DeviceMatrix::of(std::vector<float>(n, 1.0f), 1, n, DType::f32);
    BackwardPlans plans(false);
    const BackwardShape shape{
        .product = BackwardProduct::weight, .m = m, .n = n, .k = k, .in = dtype};
    BackwardShape other = shape;
    other.product = BackwardProduct::input;
    EXPECT_GT(plans(shape).slices, 1);
    const Buffer room(std::max({plans(shape).workspace_bytes, plans(other).workspace_bytes,
                                bias_backward_workspace(m, n), std::size_t{256}}));
    linear_backward_weight(plans(shape), on_dy.view(), on_x.view(), dw.view(), room.workspace(),
                           {});
    linear_backward_input(plans(other), on_dy.view(), on_w.view(), dx.view(), room.workspace(), {});
    bias_backward(on_dy.view(), static_cast<float*>(db.view().data), room.workspace(), {});
    std::vector<double> dw_exact(n * k, 1.0), dw_size(n * k, 1.0), db_exact(n, 1.0),
        db_size(n, 1.0);
    std::vector<double> dx_exact(m * k), dx_size(m * k);
    for (std::int64_t r = 0; r < m; ++r) {
      for (std::int64_t c = 0; c < n; ++c) {
        const double g = dy[static_cast<std::size_t>(r * n + c)];
        db_exact[static_cast<std::size_t>(c)] += g;
        db_size[static_cast<std::size_t>(c)] += std::abs(g);
        for (std::int64_t i = 0; i < k; ++i) {
          const auto at_w = static_cast<std::size_t>(c * k + i),
                     at_x = static_cast<std::size_t>(r * k + i);
          dw_exact[at_w] += g * x[at_x], dw_size[at_w] += std::abs(g * x[at_x]);
          dx_exact[at_x] += g * w[at_w], dx_size[at_x] += std::abs(g * w[at_w]);
        }
      }
    }
    const auto scaled = [](std::vector<double> sizes, double terms) {
      for (double& s : sizes) s *= 2 * gamma(terms);  // tensor cores may truncate: twice
      return sizes;
    };
    synchronize({});
    const double to_w = expect_close(dw.values(), dw_exact, scaled(dw_size, m), DType::f32, "dw"),
                 to_x = expect_close(dx.values(), dx_exact, scaled(dx_size, n), dtype, "dx"),
                 to_b = expect_close(db.values(), db_exact, scaled(db_size, m), DType::f32, "db");
    std::printf("%s: dw %.2e, dx %.2e, db %.2e\n", std::string(info(dtype).name).c_str(), to_w,
                to_x, to_b);
  }
}

// Fused operations have the bits of those they replace.
using GpuFused = GpuTest;

TEST_F(GpuFused, GeluAndBiasInOneVisit) {
  constexpr std::int64_t m = 700, n = 200;
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const DeviceMatrix x = DeviceMatrix::of(random_values(m * n, 1), m, n, dtype, {.gap = 8}),
                       dy = DeviceMatrix::of(random_values(m * n, 2), m, n, dtype), a(m, n, dtype),
                       b(m, n, dtype);
    const Buffer room(bias_backward_workspace(m, n)), sums(2 * n * sizeof(float));
    fill_bytes(sums.data(), 0, sums.bytes(), {});
    gelu_backward(x.view(), dy.view(), a.view(), Gelu::tanh, {});
    bias_backward(a.view(), sums.as<float>(), room.workspace(), {});
    gelu_bias_backward(x.view(), dy.view(), b.view(), Gelu::tanh, sums.as<float>() + n,
                       room.workspace(), {});
    expect_same_bits(a.values(), b.values(), "gradients");
    const std::vector<float> both = sums.values<float>();
    expect_same_bits(std::span(both).first(n), std::span(both).last(n), "sums");
    b.expect_guards("dx");
  }
}

TEST_F(GpuFused, NormAndTurnInOneVisit) {
  constexpr std::int64_t tokens = 301, heads = 4, kv_heads = 2;
  for (const std::int64_t d : {64, 128, 256}) {
    for (const DType dtype : {DType::bf16, DType::f32}) {
      const std::int64_t cols = (heads + kv_heads) * d;
      const DeviceMatrix x =
          DeviceMatrix::of(random_values(tokens * cols, 1), tokens, cols, dtype, {.gap = 8});
      const DeviceMatrix q_norm = DeviceMatrix::of(random_values(d, 2), 1, d, DType::f32),
                         k_norm = DeviceMatrix::of(random_values(d, 3), 1, d, DType::f32);
      const std::vector<float> angles = random_values(tokens * d / 2, 4);
      std::vector<float> cosines, sines;
      for (const float angle : angles)
        cosines.push_back(std::cos(angle)), sines.push_back(std::sin(angle));
      const Buffer cos = Buffer::of(std::span<const float>(cosines)),
                   sin = Buffer::of(std::span<const float>(sines));
      const Buffer inv(tokens * (heads + kv_heads) * 4), other_inv(inv.bytes()), sums(4 * d * 4),
          room(std::max(turn_heads_backward_workspace(d),
                        norm_backward_workspace(tokens * heads, d)));
      fill_bytes(sums.data(), 0, sums.bytes(), {});
      const HeadTurn turn{heads,           kv_heads,       d, q_norm.view(), k_norm.view(), 1e-6f,
                          cos.as<float>(), sin.as<float>()};
      const DeviceMatrix a(tokens, cols, dtype), b(tokens, cols, dtype);
      const auto part = [&](const DeviceMatrix& of, bool keys) {
        Matrix m = of.view();
        m.stride = m.row_stride();
        m.cols = (keys ? kv_heads : heads) * d;
        if (keys)
          m.data = static_cast<std::byte*>(m.data) +
                   heads * static_cast<std::int64_t>(row_bytes(dtype, d));
        return m;
      };
      float *const q_inv = inv.as<float>(), *const k_inv = q_inv + tokens * heads;
      turn_heads(turn, x.view(), a.view(), q_inv, k_inv, {});
      rmsnorm_heads(part(x, false), q_norm.view(), 1e-6f, part(b, false), other_inv.as<float>(),
                    {});
      rmsnorm_heads(part(x, true), k_norm.view(), 1e-6f, part(b, true),
                    other_inv.as<float>() + tokens * heads, {});
      rope(b.view(), d, cos.as<float>(), sin.as<float>(), RopePairing::half, false, {});
      expect_same_bits(a.values(), b.values(), "turned");
      expect_same_bits(inv.values<float>(), other_inv.values<float>(), "inverses");
      const std::vector<float> slopes = random_values(tokens * cols, 5);
      const DeviceMatrix da = DeviceMatrix::of(slopes, tokens, cols, dtype),
                         db = DeviceMatrix::of(slopes, tokens, cols, dtype);
      float* const s = sums.as<float>();
      turn_heads_backward(turn, x.view(), q_inv, k_inv, da.view(), s, s + d, room.workspace(), {});
      rope(db.view(), d, cos.as<float>(), sin.as<float>(), RopePairing::half, true, {});
      rmsnorm_heads_backward(part(x, false), q_norm.view(), q_inv, part(db, false), part(db, false),
                             s + 2 * d, room.workspace(), {});
      rmsnorm_heads_backward(part(x, true), k_norm.view(), k_inv, part(db, true), part(db, true),
                             s + 3 * d, room.workspace(), {});
      const auto near = [&](std::span<const float> mine, std::span<const float> theirs,
                            const char* what) {
        double gap = 0, size = 0;
        for (std::size_t i = 0; i < mine.size(); ++i) {
          gap += (double{mine[i]} - theirs[i]) * (double{mine[i]} - theirs[i]);
          size += double{theirs[i]} * theirs[i];
        }
        EXPECT_LT(std::sqrt(gap / size), dtype == DType::f32 ? 1e-6 : 0x1p-8) << what << ' ' << d;
      };
      near(da.values(), db.values(), "dx");
      const std::vector<float> all = sums.values<float>();
      near(std::span(all).first(static_cast<std::size_t>(2 * d)),
           std::span(all).last(static_cast<std::size_t>(2 * d)), "weights");
    }
  }
}

}  // namespace
}  // namespace rose::kernels::gpu

namespace rose::model {
namespace {

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
      training.losses(losses, lse);
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
