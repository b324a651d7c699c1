// The linear layer beside a double-precision product, with all that may follow it.
#pragma once

#include "rose/kernels/gpu/linear.h"
#include "rose/kernels/gpu/norm.h"
#include "rose/kernels/gpu/token_linear.h"
#include "twins.h"

namespace rose::kernels::gpu {

inline double twin_activation(Activation activation, double v) {
  constexpr double root = 0.7978845608028654;  // sqrt(2 / pi)
  switch (activation) {
    case Activation::gelu_tanh: return 0.5 * v * (1 + std::tanh(root * (v + 0.044715 * v * v * v)));
    case Activation::gelu_exact: return 0.5 * v * (1 + std::erf(v * 0.7071067811865476));
    case Activation::silu: return v / (1 + std::exp(-v));
    default: return v;
  }
}

inline void twin_linear(Fuzz& fuzz) {
  LinearShape shape{
      .m = fuzz.size(150), .n = fuzz.size(300), .k = fuzz.size(1500), .in = fuzz.activation()};
  shape.out = shape.in == DType::f32 || fuzz.coin() ? shape.in : DType::f32;
  shape.bias = fuzz.coin();
  shape.scaled = fuzz.coin();
  shape.residual = fuzz.coin();
  shape.activation = fuzz.one_of({Activation::none, Activation::none, Activation::gelu_tanh,
                                  Activation::gelu_exact, Activation::silu, Activation::swiglu});
  shape.aligned = fuzz.coin();
  fuzz.misalign(!shape.aligned);
  if (shape.aligned) shape.k = shape.k / 8 * 8;
  const Input x = fuzz.input(shape.m, shape.k, shape.in),
              w = fuzz.input(shape.weight_rows(), shape.k, shape.in, 0.1f);
  const Input bias =
      fuzz.input(random_values(shape.weight_rows(), 5), 1, shape.weight_rows(), shape.in);
  const Input residual = fuzz.input(shape.m, shape.n, shape.out);
  Output y = fuzz.output(shape.m, shape.n, shape.out);
  const float scale = shape.scaled ? 0.75f : 1.0f;
  // Each rounding on the way may move a value by its storage error; the slopes of the activations are below 1.2.
  const double u = 2 * storage_error(shape.out);
  std::vector<double> reference, bounds;
  const auto product = [&](std::int64_t r, std::int64_t c) {
    std::array<double, 2> sum{shape.bias ? bias.at(0, c) : 0,
                              shape.bias ? std::abs(bias.at(0, c)) : 0};
    for (std::int64_t k = 0; k < shape.k; ++k) {
      sum[0] += x.at(r, k) * w.at(c, k);
      sum[1] += std::abs(x.at(r, k) * w.at(c, k));
    }
    const double error =
        4 * gamma(static_cast<double>(shape.k) + 2) * sum[1] + u * std::abs(sum[0]);
    return std::array<double, 2>{sum[0], error};
  };
  constexpr double slope = 1.2, function = 0x1p-20;
  for (std::int64_t r = 0; r < shape.m; ++r) {
    for (std::int64_t c = 0; c < shape.n; ++c) {
      auto [v, error] = product(r, c);
      if (shape.activation == Activation::swiglu) {
        const auto [up, up_error] = product(r, shape.n + c);
        const double silu = twin_activation(Activation::silu, v);
        const double silu_error = slope * error + (u + function) * std::abs(silu);
        v = silu * up;
        error =
            silu_error * (std::abs(up) + up_error) + std::abs(silu) * up_error + u * std::abs(v);
      } else if (shape.activation != Activation::none) {
        const double before = std::abs(v);
        v = twin_activation(shape.activation, v);
        error = slope * error + u * std::abs(v) + function * before;
      }
      if (shape.scaled) {
        v *= scale;
        error = error * scale + u * std::abs(v);
      }
      if (shape.residual) {
        v += residual.at(r, c);
        error += u * std::abs(v);
      }
      reference.push_back(v);
      bounds.push_back(error);
    }
  }
  const std::vector<LinearPlan> plans = linear_candidates(shape, false);
  const LinearPlan plan = fuzz.coin() ? plan_linear(shape)
                                      : plans[fuzz.below(static_cast<std::uint32_t>(plans.size()))];
  fuzz.note(plan.describe());
  const Buffer workspace(plan.workspace_bytes);
  linear(plan,
         {.x = x.view(),
          .w = w.view(),
          .bias = bias.view().data,
          .scale = scale,
          .residual = residual.view(),
          .y = y.view()},
         workspace.workspace(), {});
  fuzz.expect(y, reference, bounds, "y");
}

/// The fused kernel for few rows beside the kernels that it replaces, which have twins of their own: the same bits.
inline void twin_token_linear(Fuzz& fuzz) {
  const LinearShape shape{.m = 1 + static_cast<std::int64_t>(fuzz.below(8)),
                          .n = fuzz.some(1200, 8),
                          .k = fuzz.some(3072, 128),
                          .bias = fuzz.coin(),
                          .activation = fuzz.one_of({Activation::none, Activation::silu,
                                                     Activation::gelu_tanh, Activation::swiglu})};
  const bool norm = fuzz.coin(), add = norm && fuzz.coin();
  fuzz.note(std::to_string(shape.m) + (norm ? " normed" : "") + (add ? " sums" : ""));
  if (!token_linear_fits(shape)) return;  // no such kernel on this device
  constexpr DType bf16 = DType::bf16;
  fuzz.misalign(false);
  const Input x = fuzz.input(shape.m, shape.k, bf16), other = fuzz.input(shape.m, shape.k, bf16),
              weight = fuzz.input(random_values(shape.k, 3), 1, shape.k,
                                  fuzz.one_of({DType::bf16, DType::f32})),
              w = fuzz.input(shape.weight_rows(), shape.k, bf16, 0.1f),
              bias =
                  fuzz.input(random_values(shape.weight_rows(), 5), 1, shape.weight_rows(), bf16);
  const Output sum = fuzz.output(shape.m, shape.k, bf16), y = fuzz.output(shape.m, shape.n, bf16);
  const DeviceMatrix want_sum(shape.m, shape.k, bf16), normed(shape.m, shape.k, bf16),
      want(shape.m, shape.n, bf16);
  const void* const from = shape.bias ? bias.view().data : nullptr;
  TokenLinear fused{.x = x.view(), .w = w.view(), .bias = from, .y = y.view()};
  constexpr float eps = 1e-6f;
  if (norm) fused.norm = weight.view(), fused.eps = eps;
  if (add) fused.add = other.view(), fused.sum = sum.view();
  token_linear(shape, fused, {});
  if (add) {
    add_rmsnorm(x.view(), other.view(), weight.view(), eps, want_sum.view(), normed.view(), nullptr,
                {});
  } else if (norm) {
    rmsnorm(x.view(), weight.view(), eps, normed.view(), nullptr, {});
  }
  const LinearPlan plan = linear_candidates(shape, false).back();  // the general path
  const Buffer workspace(plan.workspace_bytes);
  linear(plan,
         {.x = norm ? normed.view() : x.view(), .w = w.view(), .bias = from, .y = want.view()},
         workspace.workspace(), {});
  expect_same_bits(y.matrix.values(), want.values(), "token_linear of (" + fuzz.drawn() + ")");
  y.matrix.expect_guards("token_linear");
  if (add) expect_same_bits(sum.matrix.values(), want_sum.values(), "the sum");
}

}  // namespace rose::kernels::gpu
