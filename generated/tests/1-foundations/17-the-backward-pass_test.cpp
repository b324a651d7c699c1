// Tests of the chapter "The backward pass".

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
#include <torch/csrc/autograd/autograd.h>

#include "labs/autodiff/vjp.h"
#include "rose/core/error.h"
#include "rose/core/parallel.h"
#include "rose/core/rng.h"
#include "rose/kernels/activation.h"
#include "rose/kernels/activation_backward.h"
#include "rose/kernels/attention.h"
#include "rose/kernels/attention_backward.h"
#include "rose/kernels/cross_entropy.h"
#include "rose/kernels/embedding.h"
#include "rose/kernels/embedding_backward.h"
#include "rose/kernels/gemm-inl.h"
#include "rose/kernels/linear.h"
#include "rose/kernels/linear_backward.h"
#include "rose/kernels/norm.h"
#include "rose/kernels/norm_backward.h"
#include "rose/kernels/rope.h"
#include "rose/model/backward.h"
#include "rose/trainer/gradcheck.h"

namespace rose::kernels {
namespace {

// Compare arrays, and make random ones.
using Real = std::vector<float>;

Real random_floats(std::int64_t n, std::uint64_t stream) {
  core::Rng rng(2026, stream);
  Real out(static_cast<std::size_t>(n));
  for (float& x : out) x = rng.normal();
  return out;
}

labs::Doubles wide(const Real& x) {
  return labs::Doubles(x.begin(), x.end());
}

Real poison(std::int64_t n) {
  return Real(static_cast<std::size_t>(n), std::numeric_limits<float>::quiet_NaN());
}

// The largest difference relative to the largest expected entry, but not to less than `least`: some
// gradients are zero in exact arithmetic. NaN counts as infinite.
double gap(const Real& have, const labs::Doubles& want, double least = 0.1) {
  double worst = 0, scale = least;
  EXPECT_EQ(have.size(), want.size());
  for (const double x : want) scale = std::fmax(scale, std::fabs(x));
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double difference = std::fabs(have[i] - want[i]) / scale;
    worst = std::isnan(difference) ? INFINITY : std::fmax(worst, difference);
  }
  return worst;
}

constexpr float kRoundoff = 5.96e-8f;  // 2^-24

// Pools of one, two and three threads: results must not depend on which.
std::array<core::ThreadPool, 3>& pools() {
  static std::array<core::ThreadPool, 3> all{core::ThreadPool(1), core::ThreadPool(2),
                                             core::ThreadPool(3)};
  return all;
}

// Ragged linear layers go back, on any number of threads.
TEST(LinearBackward, AgreesWithDoublesOnAnyNumberOfThreads) {
  using Shape = std::array<std::int64_t, 3>;
  for (const auto& [m, n, k] :
       {Shape{1, 1, 1}, Shape{5, 7, 3}, Shape{6, 16, 16}, Shape{13, 300, 33}, Shape{600, 17, 50}}) {
    const Real x = random_floats(m * k, 1), w = random_floats(n * k, 2),
               dy = random_floats(m * n, 3);
    const auto [sm, sn, sk] = std::array{std::size_t(m), std::size_t(n), std::size_t(k)};
    const auto expected = labs::linear_vjp(wide(x), wide(w), wide(dy), sm, sn, sk);
    Real dx1, dw1, db1;
    for (core::ThreadPool& pool : pools()) {
      Real scratch, dx = poison(m * k), dw(sn * sk, 0.5f), db(sn, -0.5f);
      linear_backward_input(dy, m, {w.data(), DType::f32, n, k}, dx, Into::overwrite, pool,
                            scratch);
      linear_backward_weight(x, dy, m, dw, db, pool, scratch);
      Real twice = dx;
      linear_backward_input(dy, m, {w.data(), DType::f32, n, k}, twice, Into::add, pool, scratch);
      labs::Doubles dw_expected = expected.w, db_expected = expected.b, twice_expected = expected.x;
      for (double& v : dw_expected) v += 0.5;
      for (double& v : db_expected) v -= 0.5;
      for (double& v : twice_expected) v *= 2;
      const double bound = 4 * kRoundoff * std::sqrt(static_cast<double>(std::max({m, n, k})));
      EXPECT_LT(gap(dx, expected.x), bound);
      EXPECT_LT(gap(twice, twice_expected), bound);
      EXPECT_LT(gap(dw, dw_expected), bound);
      EXPECT_LT(gap(db, db_expected), bound);
      if (dx1.empty()) dx1 = dx, dw1 = dw, db1 = db;
      EXPECT_EQ(dx, dx1);
      EXPECT_EQ(dw, dw1);
      EXPECT_EQ(db, db1);
    }
  }
}

// A tile of r rows by v vectors: v loads and r broadcasts feed r v multiply-adds; r v sums, the v
// vectors and one broadcast live in registers at a time.
constexpr int loads(int r, int v) {
  return r + v;
}
constexpr int registers(int r, int v) {
  return r * v + v + 1;
}

TEST(Tile, LoadsAndRegisters) {
  EXPECT_EQ(loads(6, 2), 8);
  EXPECT_EQ(registers(6, 2), 15);
  EXPECT_EQ(loads(4, 3), 7);  // one load less, and the sixteenth and last register of AVX2
  EXPECT_EQ(registers(4, 3), 16);
  EXPECT_EQ(loads(1, 12), 13);  // more loads than products: memory decides
  EXPECT_EQ(registers(1, 12), 25);
}

// Norms go back.
TEST(NormBackward, AgreesWithDoublesOnAnyNumberOfThreads) {
  for (const std::int64_t c : {1, 2, 3, 8, 19, 200}) {
    const std::int64_t m = 37;
    const Real x = random_floats(m * c, 1), w = random_floats(c, 2), b = random_floats(c, 3),
               dy = random_floats(m * c, 4);
    for (const bool center : {false, true}) {
      const auto expected = labs::norm_vjp(wide(x), wide(w), wide(dy), 37, 1e-5, center);
      Real first;
      for (core::ThreadPool& pool : pools()) {
        Real y = poison(m * c), mean = poison(m), inv = poison(m), dx = dy;
        Real dw(static_cast<std::size_t>(c)), db(static_cast<std::size_t>(c));
        if (center) {
          layernorm(x, m, w, b, 1e-5f, y, mean, inv, pool);
          layernorm_backward(x, m, w, mean, inv, dx, dx, Into::overwrite, dw, db, pool);
          EXPECT_LT(gap(db, expected.b), 1e-5);
        } else {
          rmsnorm(x, m, w, 1e-5f, y, inv, pool);
          rmsnorm_backward(x, m, w, inv, dx, dx, Into::overwrite, dw, pool);
        }
        double terms = 0;  // the largest that cancels
        for (std::int64_t i = 0; i < m * c; ++i) {
          const auto at = static_cast<std::size_t>(i);
          const double g = w[static_cast<std::size_t>(i % c)] * dy[at];
          terms = std::fmax(terms, std::fabs(g) * inv[static_cast<std::size_t>(i / c)]);
        }
        EXPECT_LT(gap(dx, expected.x, terms), 32 * kRoundoff) << c;
        EXPECT_LT(gap(dw, expected.w), 1e-5) << c;
        if (first.empty()) first = dx;
        EXPECT_EQ(dx, first);
      }
    }
  }
}

// Activations go back, extremes included.
TEST(ActivationBackward, AgreesWithDoubles) {
  core::ThreadPool& pool = pools()[1];
  for (const std::int64_t n : {1, 7, 8, 9, 5000}) {
    Real gate = random_floats(n, 1);
    const Real up = random_floats(n, 2), dy = random_floats(n, 3);
    gate[0] = -1000.0f;
    if (n > 1) gate[1] = 1000.0f;
    Real dgate = poison(n), dup = poison(n), dx = poison(n);
    silu_multiply_backward(gate, up, dy, dgate, dup, pool);
    const auto [gate_bar, up_bar] = labs::silu_multiply_vjp(wide(gate), wide(up), wide(dy));
    EXPECT_LT(gap(dgate, gate_bar), 1e-6);
    EXPECT_LT(gap(dup, up_bar), 1e-6);
    silu_multiply_backward(gate, Real(up.size(), 1.0f), dy, dgate, dup, pool);
    silu_backward(gate, dy, dx, pool);
    EXPECT_EQ(dx, dgate);
    for (const Gelu kind : {Gelu::tanh, Gelu::exact}) {
      gelu_backward(gate, dy, dx, kind, pool);
      EXPECT_LT(gap(dx, labs::gelu_vjp(wide(gate), wide(dy), kind == Gelu::tanh)), 2e-6);
    }
  }
}

// Packed attention goes back.
TEST(AttentionBackward, AgreesWithDoublesOnAnyNumberOfThreads) {
  const AttentionShape shape{
      .heads = 4, .kv_heads = 2, .head_dim = 18, .scale = 1.0f / std::sqrt(18.0f)};
  const std::vector<std::int32_t> offsets{0, 1, 1, 64, 65, 200};
  const std::int64_t tokens = 200, wide_row = 4 * 18, narrow_row = 2 * 18;
  const Real q = random_floats(tokens * wide_row, 1), k = random_floats(tokens * narrow_row, 2);
  const Real v = random_floats(tokens * narrow_row, 3), dout = random_floats(tokens * wide_row, 4);
  Real first;
  for (core::ThreadPool& pool : pools()) {
    Real out = poison(tokens * wide_row), lse = poison(tokens * 4), scratch;
    Real dq = poison(tokens * wide_row), dk = poison(tokens * narrow_row), dv = dk;
    attention(q, k, v, offsets, shape, out, lse, pool);
    attention_backward(q, k, v, out, lse, dout, offsets, shape, dq, dk, dv, pool, scratch);
    for (std::size_t r = 0; r + 1 < offsets.size(); ++r) {
      const auto n = static_cast<std::size_t>(offsets[r + 1] - offsets[r]);
      if (n == 0) continue;
      const auto rows = [&](const Real& x, std::int64_t row) {
        return Real(x.begin() + offsets[r] * row, x.begin() + offsets[r + 1] * row);
      };
      labs::Doubles sums;
      const auto qr = wide(rows(q, wide_row)), kr = wide(rows(k, narrow_row)),
                 vr = wide(rows(v, narrow_row));
      const auto expected_out = labs::attention(qr, kr, vr, n, 4, 2, 18, &sums);
      const auto expected = labs::attention_vjp(qr, kr, vr, expected_out, sums,
                                                wide(rows(dout, wide_row)), n, 4, 2, 18);
      EXPECT_LT(gap(rows(dq, wide_row), expected.q), 1e-5) << "row " << r;
      EXPECT_LT(gap(rows(dk, narrow_row), expected.k), 1e-5) << "row " << r;
      EXPECT_LT(gap(rows(dv, narrow_row), expected.v), 1e-5) << "row " << r;
    }
    if (first.empty()) first = dk;
    EXPECT_EQ(dk, first);
  }
}

// Tables and losses go back.
TEST(EmbeddingBackward, AddsInTokenOrder) {
  const std::vector<std::int32_t> ids{2, 0, 2, 2, 4};
  const std::vector<int> same(ids.begin(), ids.end());
  const Real dy = random_floats(5 * 33, 1);
  for (core::ThreadPool& pool : pools()) {
    Real table(5 * 33, 0.0f), in_order(5 * 33, 0.0f);
    embedding_backward(ids, dy, table, 33, pool);
    for (std::size_t t = 0; t < 5; ++t) {
      for (std::size_t c = 0; c < 33; ++c)
        in_order[static_cast<std::size_t>(ids[t]) * 33 + c] += dy[t * 33 + c];
    }
    EXPECT_EQ(table, in_order);
    EXPECT_LT(gap(table, labs::embedding_vjp(same, wide(dy), 5, 33)), 1e-6);
    EXPECT_THROW(embedding_backward(std::vector<std::int32_t>{5}, Real(33), table, 33, pool),
                 core::Error);
  }
}

TEST(CrossEntropy, IsPredictedMinusObserved) {
  for (const std::int64_t v : {2, 31, 128, 300}) {
    const std::int64_t rows = 7;
    Real logits = random_floats(rows * v, 1), losses = poison(rows), scratch;
    std::vector<std::int32_t> targets{0, 1, 0, 1, -1, 0, static_cast<std::int32_t>(v - 1)};
    std::vector<int> scored(targets.begin(), targets.end());
    scored[4] = 0;
    for (std::int64_t j = 0; j < v; ++j)
      logits[static_cast<std::size_t>(j)] += 80.0f;  // needs the shift
    labs::Doubles scale(7, 0.25),
        expected_losses = labs::cross_entropy(wide(logits), scored, static_cast<std::size_t>(v));
    scale[4] = expected_losses[4] = 0.0;
    const auto expected =
        labs::cross_entropy_vjp(wide(logits), scored, scale, static_cast<std::size_t>(v));
    cross_entropy(logits, rows, targets, 0.25f, losses, pools()[1], scratch);
    EXPECT_LT(gap(losses, expected_losses), 2e-6);
    EXPECT_LT(gap(logits, expected), 5e-6);
  }
}

}  // namespace
}  // namespace rose::kernels

namespace rose::model {
namespace {

// The model again, in LibTorch's operations.
using Tensors = std::map<std::string, at::Tensor>;

at::Tensor oracle_norm(const Config& c, const Tensors& w, const std::string& name,
                       const at::Tensor& x) {
  if (c.norm == NormKind::layernorm) {
    return at::layer_norm(x, {c.hidden}, w.at(name + ".weight"), w.at(name + ".bias"), c.norm_eps);
  }
  return x * at::rsqrt(x.square().mean(-1, true) + c.norm_eps) * w.at(name + ".weight");
}

at::Tensor oracle_linear(const Tensors& w, const std::string& name, const at::Tensor& x) {
  const auto bias = w.find(name + ".bias");
  return bias == w.end() ? at::linear(x, w.at(name + ".weight"))
                         : at::linear(x, w.at(name + ".weight"), bias->second);
}

// One head group of one sequence: x [T, C] -> [heads, T, D], normalised and rotated as the family asks.
at::Tensor oracle_heads(const Config& c, const Tensors& w, const std::string& block,
                        const char* which, const at::Tensor& x, std::int64_t heads, bool turn) {
  at::Tensor y = oracle_linear(w, block + "attn." + which, x).view({x.size(0), heads, c.head_dim});
  if (c.qk_norm && turn) {
    y = y * at::rsqrt(y.square().mean(-1, true) + c.norm_eps) *
        w.at(block + "attn." + which + "_norm.weight");
  }
  if (turn && c.family != Family::gpt2) {
    const RopeSetup rope = rope_setup(c);
    const at::Tensor frequency =
        at::tensor(std::vector<double>(rope.inv_freq.begin(), rope.inv_freq.end()));
    const at::Tensor angle = at::outer(at::arange(x.size(0), at::kDouble), frequency).unsqueeze(1);
    const at::Tensor a = y.slice(-1, 0, c.head_dim / 2), b = y.slice(-1, c.head_dim / 2);
    y = at::cat({a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()}, -1);
  }
  return y.transpose(0, 1);
}

// Logits [T, V] of one sequence of ids [T].
at::Tensor oracle_logits(const Config& c, const Tensors& w, const at::Tensor& ids) {
  at::Tensor x = at::embedding(w.at("embed.weight"), ids);
  if (c.family == Family::gpt2) x = x + w.at("pos_embed.weight").slice(0, 0, ids.size(0));
  for (std::int64_t l = 0; l < c.layers; ++l) {
    const std::string block = "layers." + std::to_string(l) + ".";
    const at::Tensor n = oracle_norm(c, w, block + "attn_norm", x);
    const at::Tensor o = at::scaled_dot_product_attention(
        oracle_heads(c, w, block, "q", n, c.heads, true).unsqueeze(0),
        oracle_heads(c, w, block, "k", n, c.kv_heads, true).unsqueeze(0),
        oracle_heads(c, w, block, "v", n, c.kv_heads, false).unsqueeze(0), {}, 0.0, true,
        std::nullopt, true);
    x = x + oracle_linear(w, block + "attn.o", o[0].transpose(0, 1).flatten(1));
    const at::Tensor m = oracle_norm(c, w, block + "ffn_norm", x),
                     up = oracle_linear(w, block + "ffn.up", m);
    const at::Tensor inner = c.activation == Activation::silu
                                 ? at::silu(oracle_linear(w, block + "ffn.gate", m)) * up
                                 : at::gelu(up, c.activation == Activation::gelu ? "none" : "tanh");
    x = x + oracle_linear(w, block + "ffn.down", inner);
  }
  const at::Tensor head = w.at(c.tied_head ? "embed.weight" : "head.weight");
  return at::linear(oracle_norm(c, w, "norm", x), head);
}

// A small model of each family, shaken.
Config tiny(Family family) {
  Config c;
  c.family = family;
  c.vocab_size = 31, c.layers = 2, c.heads = 4, c.kv_heads = 2, c.head_dim = 8, c.hidden = 32,
  c.ffn = 40;
  c.max_positions = 64;
  c.tied_head = family == Family::qwen3;
  c.qkv_bias = family == Family::qwen2;
  c.qk_norm = family == Family::qwen3;
  if (family == Family::qwen3) c.head_dim = 12;
  if (family == Family::gpt2) {
    c.kv_heads = 4;
    c.norm = NormKind::layernorm, c.activation = Activation::gelu_tanh;
    c.tied_head = c.qkv_bias = c.o_bias = c.mlp_bias = true;
  }
  return c;
}

std::shared_ptr<WeightSet> shaken(const Config& config, std::uint64_t seed) {
  std::shared_ptr<WeightSet> weights = random_weights(config, seed);
  core::Rng rng(seed, 7);
  for (const Parameter& parameter : weights->parameters()) {
    for (float& x : parameter.f32()) x += 0.1f * rng.normal();
  }
  return weights;
}

// Two packed sequences, of 11 and 7 tokens; every token predicts the next one.
struct Example {
  std::vector<std::int32_t> ids, targets, positions, offsets{0, 11, 18};

  Example() {
    core::Rng rng(3, 1);
    for (int t = 0; t < 18; ++t) {
      ids.push_back(static_cast<std::int32_t>(rng.below(31)));
      targets.push_back(static_cast<std::int32_t>(rng.below(31)));
      positions.push_back(t < 11 ? t : t - 11);
    }
  }
  Batch batch() const { return {ids, positions, offsets}; }
};

// The mean loss, and its gradients added into g when given.
double loss_of(const WeightSet& weights, const Example& example, Gradients* g,
               core::ThreadPool& pool) {
  const std::int64_t c = weights.config().hidden, v = weights.config().vocab_size;
  Workspace forward_work(weights.config(), pool);
  BackwardWorkspace backward_work(weights.config(), pool);
  Saved saved;
  std::vector<float> hidden(static_cast<std::size_t>(18 * c)), d_hidden = hidden, losses(18),
                                                               scratch;
  std::vector<float> scores(static_cast<std::size_t>(18 * v));
  forward(weights, example.batch(), nullptr, &saved, forward_work, hidden);
  logits(weights, hidden, 18, forward_work, scores);
  kernels::cross_entropy(scores, 18, example.targets, 1.0f / 18, losses, pool, scratch);
  if (g != nullptr) {
    head_backward(weights, hidden, 18, scores, d_hidden, *g, backward_work);
    backward(weights, example.batch(), saved, d_hidden, *g, backward_work);
  }
  return std::accumulate(losses.begin(), losses.end(), 0.0) / 18;
}

// Every gradient of every family agrees with autograd.
class Families : public testing::TestWithParam<Family> {};

TEST_P(Families, GradientsAgreeWithAutograd) {
  const Config config = tiny(GetParam());
  const auto weights = shaken(config, 11);
  const Example example;
  Gradients g(*weights);
  const double loss = loss_of(*weights, example, &g, core::default_pool());

  Tensors tensors;
  std::vector<at::Tensor> inputs;
  for (const Parameter& p : weights->parameters()) {
    inputs.push_back(
        at::from_blob(p.data, p.shape, at::kFloat).to(at::kDouble).set_requires_grad(true));
    tensors[p.name] = inputs.back();
  }
  at::Tensor sum = at::zeros({}, at::kDouble);
  for (std::size_t r = 0; r < 2; ++r) {
    const auto part = [&](const std::vector<std::int32_t>& all) {
      return at::tensor(std::vector<std::int64_t>(all.begin() + example.offsets[r],
                                                  all.begin() + example.offsets[r + 1]));
    };
    sum = sum + at::cross_entropy_loss(oracle_logits(config, tensors, part(example.ids)),
                                       part(example.targets), {}, at::Reduction::Sum);
  }
  const at::Tensor expected_loss = sum / 18;
  EXPECT_NEAR(loss, expected_loss.item<double>(), 1e-5);
  const auto expected = torch::autograd::grad({expected_loss}, inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor flat = expected[i].contiguous();
    const labs::Doubles want(flat.const_data_ptr<double>(),
                             flat.const_data_ptr<double>() + flat.numel());
    const std::span<float> have = g.parameter(i);
    EXPECT_LT(kernels::gap({have.begin(), have.end()}, want, 1e-3), 2e-5)
        << weights->parameters()[i].name;
  }
}

INSTANTIATE_TEST_SUITE_P(AllFour, Families,
                         testing::Values(Family::gpt2, Family::llama, Family::qwen2, Family::qwen3),
                         [](const auto& info) { return std::string(name(info.param)); });

// The loss rises along the gradient, and threads do not show.
TEST_P(Families, TheLossRisesAlongTheGradientWithItsNorm) {
  const auto weights = shaken(tiny(GetParam()), 12);
  const Example example;
  Gradients g(*weights);
  loss_of(*weights, example, &g, core::default_pool());
  const std::vector<float> gradient(g.all().begin(), g.all().end());
  const double norm =
      std::sqrt(std::inner_product(gradient.begin(), gradient.end(), gradient.begin(), 0.0));
  const auto shifted_loss = [&](double step) {
    const auto moved = shaken(tiny(GetParam()), 12);
    std::size_t at = 0;
    for (const Parameter& p : moved->parameters()) {
      for (float& x : p.f32()) x += static_cast<float>(step * gradient[at++] / norm);
    }
    return loss_of(*moved, example, nullptr, core::default_pool());
  };
  const double h = 0.01, slope = (shifted_loss(h) - shifted_loss(-h)) / (2 * h);
  EXPECT_NEAR(slope / norm, 1.0, 2e-3);
}

TEST_P(Families, TheBitsDoNotDependOnTheThreads) {
  const auto weights = shaken(tiny(GetParam()), 13);
  std::vector<std::vector<float>> all;
  for (core::ThreadPool& pool : kernels::pools()) {
    Gradients g(*weights);
    loss_of(*weights, Example(), &g, pool);
    all.emplace_back(g.all().begin(), g.all().end());
  }
  EXPECT_EQ(all[0], all[1]);
  EXPECT_EQ(all[0], all[2]);
}

}  // namespace
}  // namespace rose::model
