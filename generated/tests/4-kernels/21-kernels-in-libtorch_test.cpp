// Tests of the chapter "Kernels in LibTorch".

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

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "labs/gpu/gpu_test.h"
#include "rose/core/error.h"
#include "rose/kernels/activation_torch.h"
#include "rose/kernels/attention_torch.h"
#include "rose/kernels/autograd_torch.h"
#include "rose/kernels/cross_entropy_torch.h"
#include "rose/kernels/embedding_torch.h"
#include "rose/kernels/linear_torch.h"
#include "rose/kernels/norm_torch.h"
#include "rose/kernels/rope_torch.h"
#include "rose/kernels/tensor_torch.h"

namespace rose::kernels {
namespace {

// A slice is a matrix, and what is none says why.
TEST(KernelsInTorch, ASliceIsAMatrix) {
  const at::Tensor qkv = at::empty({2, 12}, at::kFloat), key = qkv.narrow(1, 4, 4);
  const gpu::Matrix m = matrix_of(key, "k");
  EXPECT_EQ(m.data, static_cast<float*>(qkv.data_ptr()) + 4);
  EXPECT_EQ(m.rows, 2);
  EXPECT_EQ(m.cols, 4);
  EXPECT_EQ(m.stride, 12);
  const at::Tensor heads = key.unflatten(1, {2, 2});
  EXPECT_FALSE(is_matrix(heads));
  EXPECT_EQ(matrix_of(heads, "k", 2).stride, 12);
  EXPECT_EQ(matrix_of(qkv.unflatten(1, {3, 4}), "qkv").rows, 6);
  EXPECT_EQ(matrix_of(qkv[0], "weight").rows, 1);
  EXPECT_EQ(matrix_of(qkv.narrow(0, 0, 0).t(), "nothing").cols, 0);
}

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const core::Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(KernelsInTorch, WhatIsNoMatrixSaysWhy) {
  const at::Tensor x = at::empty({2, 12}, at::kFloat);
  EXPECT_EQ(message_of([&] { matrix_of(x.t(), "w"); }),
            "w: sizes [12, 2] with strides [1, 12] are no matrix: the elements of a row must be "
            "neighbours, and rows equally far apart (contiguous() makes a copy that is one)");
  EXPECT_FALSE(is_matrix(x[0].expand({5, 12})));
  EXPECT_THAT(message_of([&] { matrix_of(x.to(at::kDouble), "x"); }),
              testing::HasSubstr("x: elements of type Double"));
  const at::Tensor meta = x.to(at::kMeta);
  EXPECT_THAT(message_of([&] { Site(meta, "x"); }),
              testing::HasSubstr("x: a tensor on the device meta"));
  EXPECT_THAT(message_of([&] { Site(x, "x").matrix(meta, "weight"); }),
              testing::HasSubstr("weight: it is on meta, the others are on cpu"));
  EXPECT_THAT(message_of([&] { Site(x, "x").floats(x.narrow(1, 0, 4), "x"); }),
              testing::HasSubstr("have gaps"));
  EXPECT_THAT(message_of([&] { Site(x, "x").integers(x, "ids"); }),
              testing::HasSubstr("ids: elements of type f32, where i32 is needed"));
}

// Go there and back, by ours and by LibTorch's.

/// Where and in what an operation is tested.
struct Place {
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;
  double rounding = 1;  ///< how many times a result is rounded to the type
  double stored() const { return dtype == at::kBFloat16 ? 0x1p-8 : 0x1p-24; }
};
constexpr double unit = 0x1p-24;
const Place cpu{};
const Place bf16_gpu{at::kCUDA, at::kBFloat16};

using autograd::Tensors;
using Call = std::function<at::Tensor(const Tensors&)>;

/// Normal numbers around a mean, representable in the type, as doubles.
at::Tensor normal(at::IntArrayRef sizes, std::uint64_t seed, const Place& place, double mean = 0) {
  at::Tensor values = at::empty(sizes, at::kFloat);
  std::ranges::copy(gpu::random_values(values.numel(), seed), values.mutable_data_ptr<float>());
  return (values + mean).to(place.dtype).to(at::kDouble);
}

/// The result of the call on copies of the inputs of this type, then the gradient of each; all as doubles on the CPU.
Tensors there_and_back(const Call& call, const Tensors& inputs, const at::Tensor& gradient,
                       const at::TensorOptions& options) {
  Tensors leaves;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.to(options).clone().requires_grad_());
  }
  const at::Tensor y = call(leaves);
  y.backward(gradient.to(y.options()));
  Tensors out{y.detach().to(at::kCPU, at::kDouble)};
  for (const at::Tensor& leaf : leaves) {
    const at::Tensor grad = leaf.grad().defined() ? leaf.grad() : at::zeros_like(leaf);
    out.push_back(grad.to(at::kCPU, at::kDouble));
  }
  return out;
}

/// Expects |ours - theirs| <= bound + what storing costs, element by element.
void expect_near(const Tensors& ours, const Tensors& theirs, const Tensors& bounds,
                 const Place& place, std::string_view name) {
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    ASSERT_EQ(ours[i].sizes(), theirs[i].sizes()) << name << " " << i;
    const at::Tensor allowed =
        bounds[i] + theirs[i].abs() * (1.01 * place.rounding * place.stored()) + 0x1p-126;
    const at::Tensor share = (ours[i] - theirs[i]).abs() / allowed;
    EXPECT_LE(share.max().item<double>(), 1.0)
        << name << (i == 0 ? ": the result" : ": the gradient of input " + std::to_string(i - 1));
    EXPECT_FALSE(ours[i].isnan().any().item<bool>()) << name << " " << i;
  }
}

void compare(const Call& our_call, const Call& their_call, const Tensors& inputs,
             const at::Tensor& gradient, const Tensors& bounds, const Place& place,
             std::string_view name) {
  const Tensors ours = there_and_back(our_call, inputs, gradient,
                                      at::TensorOptions(place.device).dtype(place.dtype));
  const Tensors theirs = there_and_back(their_call, inputs, gradient, at::kDouble);
  expect_near(ours, theirs, bounds, place, name);
}

// The linear layer there and back.
void check_linear(const Place& place) {
  constexpr std::int64_t m = 37, k = 96, n = 24;
  const Tensors in{normal({m, k}, 1, place), normal({n, k}, 2, place), normal({n}, 3, place)};
  const at::Tensor dy = normal({m, n}, 4, place);
  const at::Tensor x = in[0].abs(), w = in[1].abs(), b = in[2].abs(), g = dy.abs();
  const double parts = place.dtype == at::kBFloat16 ? 8 * place.stored() : 0;
  const Tensors bounds{
      (x.matmul(w.t()) + b) * gpu::gamma(k + 1), g.matmul(w) * (gpu::gamma(n) + parts),
      g.t().matmul(x) * (gpu::gamma(m) + parts), g.sum(0) * (gpu::gamma(m) + parts)};
  compare([](const Tensors& t) { return autograd::linear(t[0], t[1], t[2]); },
          [](const Tensors& t) { return at::linear(t[0], t[1], t[2]); }, in, dy, bounds, place,
          "linear");
}

TEST(KernelsInTorch, Linear) {
  check_linear(cpu);
}

// Norms there and back.
constexpr double eps = 1e-5;

/// Bounds of y, dx and dweight of x / sqrt(mean(x^2) + eps) * w.
Tensors rmsnorm_bounds(const at::Tensor& x, const at::Tensor& w, const at::Tensor& dy) {
  const auto c = static_cast<double>(x.size(-1)), m = static_cast<double>(x.size(0));
  const at::Tensor r = (x.pow(2).mean(-1, true) + eps).rsqrt(), h = (x * r).abs(),
                   g = (dy * w).abs();
  return {h * w.abs() * ((c / 2 + 8) * unit),
          r * (g + h * (g * h).mean(-1, true)) * ((2 * c + 16) * unit),
          (dy.abs() * h).sum(0) * ((c / 2 + m + 8) * unit)};
}

void check_rmsnorm(const Place& place) {
  const Tensors in{normal({23, 200}, 5, place), normal({200}, 6, place)};
  const at::Tensor dy = normal({23, 200}, 7, place);
  Place twice = place;
  twice.rounding = 2;
  compare([](const Tensors& t) { return autograd::rmsnorm(t[0], t[1], eps); },
          [](const Tensors& t) { return at::rms_norm(t[0], {200}, t[1], eps); }, in, dy,
          rmsnorm_bounds(in[0], in[1], dy), twice, "rmsnorm");
}

void check_layernorm(const Place& place) {
  constexpr std::int64_t m = 23, c = 200;
  const Tensors in{normal({m, c}, 8, place, 1), normal({c}, 9, place), normal({c}, 10, place)};
  const at::Tensor dy = normal({m, c}, 11, place), x = in[0];
  const at::Tensor d = x - x.mean(-1, true), r = (d.pow(2).mean(-1, true) + eps).rsqrt();
  const at::Tensor h = 1 + (d * r).abs(), g = (dy * in[1]).abs();
  const at::Tensor grow = 1 + r * x.abs().amax(-1, true);
  constexpr double sum = (2 * c + 16) * unit;
  const Tensors bounds{
      in[1].abs() * grow * h * sum + in[2].abs() * unit,
      r * grow * grow * (g + g.mean(-1, true) + h * (g * h).mean(-1, true)) * (3 * sum),
      (dy.abs() * grow * h).sum(0) * (sum + m * unit), dy.abs().sum(0) * gpu::gamma(m)};
  compare([](const Tensors& t) { return autograd::layernorm(t[0], t[1], t[2], eps); },
          [](const Tensors& t) { return at::layer_norm(t[0], {c}, t[1], t[2], eps); }, in, dy,
          bounds, place, "layernorm");
}

TEST(KernelsInTorch, Norms) {
  check_rmsnorm(cpu);
  check_layernorm(cpu);
}

// Two outputs, and one of them unused.
enum class Used { sum, norm, both };

void check_add_rmsnorm(const Place& place) {
  const at::Tensor coarse = (normal({9, 64}, 12, place) * 8).round() / 8;
  const Tensors in{coarse, coarse.flip(0), normal({64}, 13, place)};
  const at::Tensor past = normal({9, 64}, 14, place), dy = normal({9, 64}, 15, place);
  const at::Tensor sum = in[0] + in[1], none = at::zeros_like(past);
  for (const Used used : {Used::sum, Used::norm, Used::both}) {
    const auto choose = [&](const at::Tensor& s, const at::Tensor& y) {
      return used == Used::sum ? s : used == Used::norm ? y : at::stack({s, y});
    };
    Tensors bounds = rmsnorm_bounds(sum, in[2], used == Used::sum ? none : dy);
    bounds[0] = choose(none, bounds[0]);
    if (used != Used::norm) bounds[1] = bounds[1] + past.abs() * (2 * unit);
    Place twice = place;
    twice.rounding = 2;
    compare(
        [&](const Tensors& t) {
          const auto [s, y] = autograd::add_rmsnorm(t[0], t[1], t[2], eps);
          return choose(s, y);
        },
        [&](const Tensors& t) {
          const at::Tensor s = t[0] + t[1];
          return choose(s, at::rms_norm(s, {64}, t[2], eps));
        },
        in, choose(past, dy), {bounds[0], bounds[1], bounds[1], bounds[2]}, twice, "add_rmsnorm");
  }
}

TEST(KernelsInTorch, AddAndNorm) {
  check_add_rmsnorm(cpu);
}

// Activations there and back.
void check_activations(const Place& place) {
  const Tensors in{normal({11, 72}, 16, place) * 2, normal({11, 72}, 17, place)};
  const at::Tensor dy = normal({11, 72}, 18, place);
  const at::Tensor z = in[0].abs(), g = dy.abs(), s = in[0].sigmoid(), up = in[1].abs();
  const at::Tensor close = (z * 4 + 32) * unit;
  Place twice = place;
  twice.rounding = 2;
  compare([](const Tensors& t) { return autograd::silu_multiply(t[0], t[1]); },
          [](const Tensors& t) { return at::silu(t[0]) * t[1]; }, in, dy,
          {z * s * up * close, g * up * s * (1 + z * (1 - s)) * close, g * z * s * close}, twice,
          "silu_multiply");
  compare([](const Tensors& t) { return autograd::silu(t[0]); },
          [](const Tensors& t) { return at::silu(t[0]); }, {in[0]}, dy,
          {z * s * close, g * s * (1 + z * (1 - s)) * close}, place, "silu");
  for (const Gelu kind : {Gelu::exact, Gelu::tanh}) {
    const auto* const name = kind == Gelu::exact ? "none" : "tanh";
    compare([&](const Tensors& t) { return autograd::gelu(t[0], kind); },
            [&](const Tensors& t) { return at::gelu(t[0], name); }, {in[0]}, dy,
            {z * close, g * (1 + z) * close}, place, name);
  }
}

TEST(KernelsInTorch, Activations) {
  check_activations(cpu);
}

// Rotations and embeddings there and back.
void check_rope(const Place& place) {
  constexpr std::int64_t length = 7, count = 3, half = 16;
  const at::Tensor angles = normal({length, half}, 19, cpu) * 3;
  const at::Tensor cos = angles.cos().to(place.device, at::kFloat),
                   sin = angles.sin().to(place.device, at::kFloat);
  const at::Tensor c = cos.to(at::kCPU, at::kDouble).unsqueeze(1),
                   s = sin.to(at::kCPU, at::kDouble).unsqueeze(1);
  const Tensors in{normal({length, count, 2 * half}, 20, place)};
  const at::Tensor dy = normal({length, count, 2 * half}, 21, place);
  const auto turn = [](const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine) {
    const at::Tensor a = x.narrow(2, 0, half), b = x.narrow(2, half, half);
    return at::cat({a * cosine - b * sine, b * cosine + a * sine}, 2);
  };
  const auto bound = [&](const at::Tensor& x) {
    const at::Tensor a = x.abs().narrow(2, 0, half), b = x.abs().narrow(2, half, half);
    return at::cat({a * c.abs() + b * s.abs(), b * c.abs() + a * s.abs()}, 2) * (3 * unit);
  };
  compare([&](const Tensors& t) { return autograd::rope(t[0], cos, sin); },
          [&](const Tensors& t) { return turn(t[0], c, s); }, in, dy, {bound(in[0]), bound(dy)},
          place, "rope");
}

void check_embedding(const Place& place) {
  const std::array<std::int32_t, 9> chosen{3, 0, 3, 3, 11,
                                           0, 7, 3, 3};  // one row is used five times
  at::Tensor ids = at::empty({9}, at::kInt);
  std::ranges::copy(chosen, ids.mutable_data_ptr<std::int32_t>());
  const at::Tensor dy = normal({9, 40}, 23, place);
  const auto look_up = [&](const at::Tensor& table) { return at::embedding(table, ids); };
  const at::Tensor counted = look_up(normal({12, 40}, 22, place));
  at::Tensor sums = at::zeros_like(normal({12, 40}, 22, place));
  sums.index_add_(0, ids, dy.abs());
  const at::Tensor here = ids.to(place.device);
  compare([&](const Tensors& t) { return autograd::embedding(here, t[0]); },
          [&](const Tensors& t) { return look_up(t[0]); }, {normal({12, 40}, 22, place)}, dy,
          {at::zeros_like(counted), sums * gpu::gamma(5)}, place, "embedding");
}

TEST(KernelsInTorch, RotationsAndEmbeddings) {
  check_rope(cpu);
  check_embedding(cpu);
}

// What attention may be off by.
constexpr std::int64_t heads = 4, kv_heads = 2, dim = 64, group = heads / kv_heads, tokens = 42;
constexpr float scale = 0.125f;

/// [T, H, D] as [H, T, D], each head so many times.
at::Tensor by_head(const at::Tensor& x, std::int64_t copies) {
  return x.transpose(0, 1).repeat_interleave(copies, 0);
}
at::Tensor by_token(const at::Tensor& x, std::int64_t copies) {
  return x.unflatten(0, {-1, copies}).sum(1).transpose(0, 1);
}

Tensors attention_bounds(const Tensors& in, const at::Tensor& dout, const at::Tensor& sees,
                         const Place& place) {
  const at::Tensor q = by_head(in[0], 1), k = by_head(in[1], group), v = by_head(in[2], group),
                   g = by_head(dout, 1).abs();
  const at::Tensor scores = q.matmul(k.mT()) * scale;
  const at::Tensor p = scores.masked_fill(sees.logical_not(), -INFINITY).softmax(-1);
  const at::Tensor largest = (q.abs().matmul(k.abs().mT()) * scale).max();
  const double delta = gpu::gamma(dim + 2) * largest.item<double>();
  const double rounded = place.dtype == at::kBFloat16 ? 4 * place.stored() : 0;
  const double there = 2 * delta + (2 * tokens + 16) * unit + rounded;
  const double back = 2 * there + (2 * dim + 32) * unit + 2 * rounded;
  const at::Tensor dp = g.matmul(v.abs().mT()), ds = p * (dp + (p * dp).sum(-1, true)) * scale;
  return {by_token(p.matmul(v.abs()), 1) * there, by_token(ds.matmul(k.abs()), 1) * back,
          by_token(ds.mT().matmul(q.abs()), group) * back,
          by_token(p.mT().matmul(g), group) * back};
}

// Attention there and back.
void check_attention(const Place& place) {
  const std::vector<std::int32_t> offsets{0, 5, 5, tokens};
  const Tensors in{normal({tokens, heads, dim}, 24, place),
                   normal({tokens, kv_heads, dim}, 25, place),
                   normal({tokens, kv_heads, dim}, 26, place)};
  const at::Tensor dout = normal({tokens, heads, dim}, 27, place);
  const at::Tensor index = at::arange(tokens, at::kLong), sequence = index.ge(5);
  const at::Tensor sees =
      index.unsqueeze(1).ge(index).logical_and(sequence.unsqueeze(1).eq(sequence));
  const auto rows =
      std::make_shared<autograd::PackedRows>(AttentionShape{heads, kv_heads, dim, scale}, offsets);
  compare([&](const Tensors& t) { return autograd::attention(rows, t[0], t[1], t[2]); },
          [&](const Tensors& t) {
            return at::scaled_dot_product_attention(by_head(t[0], 1), by_head(t[1], group),
                                                    by_head(t[2], group), sees, 0.0, false,
                                                    double{scale})
                .transpose(0, 1);
          },
          in, dout, attention_bounds(in, dout, sees, place), place, "attention");
}

TEST(KernelsInTorch, Attention) {
  check_attention(cpu);
}

// The loss there and back.
void check_cross_entropy(const Place& place) {
  constexpr std::int64_t r = 6, v = 300;
  const Tensors in{normal({r, v}, 28, place) * 4};
  at::Tensor targets = at::arange(r, at::kInt) * 37;
  targets[2].fill_(-100);
  const at::Tensor weights = normal({r}, 29, place), long_targets = targets.to(at::kLong);
  const at::Tensor z = in[0], p = z.softmax(1), spread = z.amax(1) - z.amin(1);
  const at::Tensor off = (spread * 4 + v + 32) * unit;
  const at::Tensor here = targets.to(place.device);
  compare([&](const Tensors& t) { return autograd::cross_entropy(t[0], here); },
          [&](const Tensors& t) { return at::cross_entropy_loss(t[0], long_targets, {}, 0); }, in,
          weights,
          {off, (p + 2 * unit) * (weights.abs() * off).unsqueeze(1) +
                    weights.abs().unsqueeze(1) * (4 * unit)},
          place, "cross_entropy");
  const at::Tensor logits = z.to(place.device, at::kFloat);
  const at::Tensor with = autograd::cross_entropy(logits.clone().requires_grad_(), here);
  EXPECT_TRUE(autograd::cross_entropy(logits, here).equal(with.detach()));
}

TEST(KernelsInTorch, CrossEntropy) {
  check_cross_entropy(cpu);
}

// Softmax there and back.
void check_softmax(const Place& place) {
  constexpr std::int64_t r = 5, v = 130;
  const Tensors in{normal({r, v}, 50, place) * 2};
  const at::Tensor dy = normal({r, v}, 51, place);
  const at::Tensor p = in[0].softmax(1), spread = in[0].amax(1, true) - in[0].amin(1, true);
  const at::Tensor off = (spread * 4 + v + 32) * unit + 2 * place.stored();
  const at::Tensor mean = (p * dy.abs()).sum(1, true);
  compare([](const Tensors& t) { return autograd::softmax(t[0]); },
          [](const Tensors& t) { return t[0].softmax(1); }, in, dy,
          {p * off, p * (dy.abs() + mean) * (3 * off)}, place, "softmax");
}

TEST(KernelsInTorch, Softmax) {
  check_softmax(cpu);
}

// What was saved must stay, and what has no gradient says so.
TEST(KernelsInTorch, WhatWasSavedMustStay) {
  const at::Tensor x = normal({4, 8}, 30, cpu).to(at::kFloat),
                   w = normal({8}, 31, cpu).to(at::kFloat);
  at::Tensor input = x.clone();
  const at::Tensor weight = w.clone().requires_grad_();
  const at::Tensor y = autograd::rmsnorm(input, weight, eps);
  input.add_(1);
  EXPECT_THAT([&] { y.sum().backward(); },
              testing::ThrowsMessage<std::exception>(
                  testing::HasSubstr("modified by an inplace operation")));
}

TEST(KernelsInTorch, ASecondDerivativeIsRefused) {
  const at::Tensor x = normal({4, 8}, 32, cpu).to(at::kFloat).requires_grad_();
  const at::Tensor y = autograd::gelu(x, Gelu::tanh);
  EXPECT_EQ(message_of([&] { y.sum().backward({}, std::nullopt, /*create_graph=*/true); }),
            "gelu has no second derivative (call backward without create_graph)");
}

TEST(KernelsInTorch, WhatNeedsNoGradientGetsNone) {
  const at::Tensor x = normal({4, 8}, 33, cpu).to(at::kFloat),
                   w = normal({3, 8}, 34, cpu).to(at::kFloat);
  EXPECT_FALSE(autograd::linear(x, w).requires_grad());
  const at::Tensor frozen = w.clone(), free = x.clone().requires_grad_();
  const at::Tensor y = autograd::linear(free, frozen);
  y.sum().backward();  // the gradient that arrives is one number, expanded
  EXPECT_TRUE(free.grad().defined());
  EXPECT_FALSE(frozen.grad().defined());
  EXPECT_EQ(message_of([&] { autograd::token_logprob(free, at::zeros({4}, at::kInt)); }),
            "token_logprob has no gradient here (call it under at::NoGradGuard, or detach() its "
            "input)");
  const at::NoGradGuard off;
  EXPECT_FALSE(autograd::linear(free, frozen).requires_grad());
  EXPECT_NEAR(autograd::softmax(free).sum().item<double>(), 4.0, 1e-6);
}

TEST(KernelsInTorch, NoRowsAreNoTrouble) {
  const at::Tensor x = at::empty({0, 8}, at::kFloat).requires_grad_(),
                   w = at::ones({8}, at::kFloat);
  const at::Tensor y = autograd::rmsnorm(x, w, eps);
  EXPECT_EQ(y.sizes(), x.sizes());
  y.sum().backward();
  EXPECT_EQ(x.grad().sizes(), x.sizes());
}

// The same on a GPU.
using GpuTorch = gpu::GpuTest;

TEST_F(GpuTorch, Linear) {
  check_linear(bf16_gpu);
}
TEST_F(GpuTorch, Norms) {
  check_rmsnorm(bf16_gpu);
  check_layernorm(bf16_gpu);
  check_add_rmsnorm(bf16_gpu);
}
TEST_F(GpuTorch, Activations) {
  check_activations(bf16_gpu);
}
TEST_F(GpuTorch, RotationsAndEmbeddings) {
  check_rope(bf16_gpu);
  check_embedding(bf16_gpu);
}
TEST_F(GpuTorch, Attention) {
  check_attention(bf16_gpu);
}
TEST_F(GpuTorch, CrossEntropy) {
  check_cross_entropy({at::kCUDA, at::kFloat});
}
TEST_F(GpuTorch, Softmax) {
  check_softmax(bf16_gpu);
}

// Bits, slices and streams on a GPU.
at::Tensor on_gpu(const at::Tensor& x) {
  return x.to(at::TensorOptions(at::kCUDA).dtype(at::kBFloat16));
}

TEST_F(GpuTorch, ARowDoesNotKnowHowManyThereAre) {
  const at::Tensor x = on_gpu(normal({64, 256}, 35, bf16_gpu)),
                   w = on_gpu(normal({512, 256}, 36, bf16_gpu));
  const at::Tensor all = autograd::linear(x, w);
  for (const std::int64_t rows : {1, 7, 33}) {
    EXPECT_TRUE(autograd::linear(x.narrow(0, 3, rows), w).equal(all.narrow(0, 3, rows))) << rows;
  }
}

TEST_F(GpuTorch, ASliceIsReadInPlace) {
  const at::Tensor qkv = on_gpu(normal({5, 6 * 64}, 37, bf16_gpu)),
                   w = on_gpu(normal({64}, 38, bf16_gpu));
  const at::Tensor key = qkv.narrow(1, 128, 128).unflatten(1, {2, 64});
  EXPECT_TRUE(autograd::rmsnorm(key, w, eps).equal(autograd::rmsnorm(key.contiguous(), w, eps)));
}

TEST_F(GpuTorch, WorkGoesToTheCurrentStream) {
  const c10::impl::VirtualGuardImpl cuda(at::kCUDA);
  const c10::Stream side = cuda.getStreamFromGlobalPool(cuda.getDevice());
  const at::Tensor x = on_gpu(normal({300, 512}, 39, bf16_gpu)),
                   w = on_gpu(normal({512}, 40, bf16_gpu));
  const at::Tensor here = autograd::rmsnorm(x, w, eps);
  gpu::synchronize(Site(x, "x").stream());
  const c10::StreamGuard guard(side);
  EXPECT_EQ(Site(x, "x").stream().handle, side.native_handle());
  const at::Tensor there = autograd::rmsnorm(x, w, eps);
  gpu::synchronize({side.native_handle()});
  EXPECT_TRUE(there.equal(here));
}

TEST_F(GpuTorch, OperandsOnTwoDevicesAreRefused) {
  const at::Tensor x = on_gpu(normal({3, 8}, 41, bf16_gpu)), w = at::ones({8}, at::kBFloat16);
  EXPECT_EQ(message_of([&] { autograd::rmsnorm(x, w, eps); }),
            "weight: it is on cpu, the others are on " + x.device().str());
}

}  // namespace
}  // namespace rose::kernels
