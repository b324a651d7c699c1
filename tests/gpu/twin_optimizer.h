// Optimizers: AdamW and the norm bit for bit as the CPU, Muon bit for bit as a CPU that multiplies as a tensor core does.
#pragma once

#include <cmath>

#include "rose/core/parallel.h"
#include "rose/kernels/adamw.h"
#include "rose/kernels/gpu/muon.h"
#include "rose/kernels/gpu/optimizer.h"
#include "rose/kernels/tensor_core.h"
#include "twins.h"

namespace rose::kernels::gpu {

struct OptimizerDraw {
  OptimizerDraw(Fuzz& f, std::int64_t most)
      : rows(f.some(most)),
        cols(f.some(most)),
        half(f.coin()),
        chance(half && f.coin()),
        weight_type(half ? DType::bf16 : DType::f32),
        gradient_type(f.activation()),
        copy_type(half ? DType::f32 : f.one_of({DType::f32, DType::bf16, DType::f16})),
        weight(values(f, weight_type)),
        gradient(values(f, gradient_type)),
        first(values(f, DType::f32)),
        second(values(f, DType::f32)),
        device_weight(DeviceMatrix::of(weight, rows, cols, weight_type)),
        device_gradient(DeviceMatrix::of(gradient, rows, cols, gradient_type)),
        device_copy(rows, cols, copy_type),
        device_first(Buffer::of(std::span<const float>(first))),
        device_second(Buffer::of(std::span<const float>(second))) {}
  std::vector<float> values(Fuzz& f, DType dtype) {
    std::vector<float> v(static_cast<std::size_t>(rows * cols));
    for (float& x : v) x = rounded(f.uniform() - (dtype == DType::f32 ? 0.0f : 0.5f), dtype);
    return v;
  }
  AdamWParameter parameter() const {
    return {.weight = device_weight.view(),
            .gradient = device_gradient.view(),
            .first = device_first.as<float>(),
            .second = device_second.as<float>(),
            .copy = copy_type == DType::f32 ? Matrix{} : device_copy.view(),
            .by_chance = chance,
            .key = key};
  }
  /// What the device must have stored: rounded to nearest, or by chance.
  void round(std::vector<float>& w) const {
    core::ThreadPool pool(1);
    if (!half) return;
    std::vector<bf16> stored(w.size());
    chance ? to_bf16_stochastic(w, key, stored, pool) : to_bf16(w, stored, pool);
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = to_float(stored[i]);
  }
  /// The copy for the next pass, where there is one: the new weights rounded to nearest.
  void expect_copy(std::vector<float> w) const {
    if (copy_type == DType::f32) return;
    for (float& value : w) value = rounded(value, copy_type);
    expect_same_bits(device_copy.values(), w, "the copy");
    device_copy.expect_guards("the copy");
  }
  std::int64_t rows, cols;
  bool half, chance;
  DType weight_type, gradient_type, copy_type;  ///< copy_type f32: none
  std::vector<float> weight, gradient, first, second;
  DeviceMatrix device_weight, device_gradient, device_copy;
  Buffer device_first, device_second;
  RoundingKey key{.seed = 5, .step = 3, .parameter = 9, .first_element = 1024};
};

inline void twin_adamw(Fuzz& fuzz) {
  core::ThreadPool pool(1);
  OptimizerDraw d(fuzz, 300);
  const AdamWStep step = at_step({.decay = 0.1f, .rate = 0.01f}, 1 + fuzz.below(50));
  adamw(d.parameter(), step, nullptr, {});
  std::vector<float> w = d.weight;
  kernels::adamw(w, d.gradient, 1.0f, d.first, d.second, step, pool);
  d.round(w);
  expect_same_bits(d.device_weight.values(), w, "weights of (" + fuzz.drawn() + ")");
  d.device_weight.expect_guards("adamw");
  expect_same_bits(d.device_first.values<float>(), d.first, "first moments");
  expect_same_bits(d.device_second.values<float>(), d.second, "second moments");
  d.expect_copy(w);
}

inline void twin_gradient_norm(Fuzz& fuzz) {
  core::ThreadPool pool(1);
  std::vector<DeviceMatrix> device;
  std::vector<double> sums;
  const std::uint32_t count = fuzz.below(5);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::int64_t n = fuzz.size(70'000);
    const DType dtype = fuzz.activation();
    const Input g = fuzz.input(1, n, dtype);
    device.push_back(DeviceMatrix::of(g.values(), 1, n, dtype));
    std::vector<double> own(static_cast<std::size_t>((n + norm_block - 1) / norm_block));
    square_sums(g.values(), own, pool);
    sums.insert(sums.end(), own.begin(), own.end());
  }
  std::vector<Matrix> gradients;
  for (const DeviceMatrix& m : device) gradients.push_back(m.view());
  Buffer workspace(gradient_norm_workspace(gradients) + 256), result(2 * sizeof(float));
  result.poison();
  gradient_norm(gradients, 1.0f, result.as<float>(), workspace.workspace(), {});
  const auto norm = static_cast<float>(std::sqrt(fold_square_sums(sums)));
  const std::vector<float> want{norm, norm > 1.0f ? 1.0f / norm : 1.0f};
  expect_same_bits(result.values<float>(), want, "norm of (" + fuzz.drawn() + ")");
}

/// x w^T for rows of k numbers, as a tensor core adds.
inline std::vector<float> tensor_product(const std::vector<float>& x, const std::vector<float>& w,
                                         std::int64_t k) {
  const auto depth = static_cast<std::size_t>(k);
  const std::size_t m = x.size() / depth, n = w.size() / depth;
  std::vector<float> y(m * n);
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t j = 0; j < n; ++j)
      y[i * n + j] = tensor_core_dot(std::span(x).subspan(i * depth, depth),
                                     std::span(w).subspan(j * depth, depth));
  }
  return y;
}
inline std::vector<float> turned(const std::vector<float>& x, std::int64_t rows,
                                 std::int64_t cols) {
  std::vector<float> y(x.size());
  for (std::int64_t i = 0; i < rows * cols; ++i)
    y[static_cast<std::size_t>(i % cols * rows + i / cols)] = x[static_cast<std::size_t>(i)];
  return y;
}

inline void twin_muon(Fuzz& fuzz) {
  core::ThreadPool pool(1);
  OptimizerDraw d(fuzz, 60);
  const MuonStep step{.nesterov = fuzz.coin(), .decay = 0.1f, .rate = 0.01f, .scale = 1.5f};
  const MuonPlan plan = plan_muon(d.rows, d.cols);
  Buffer workspace(plan.workspace_bytes);
  workspace.poison();
  muon(plan, d.parameter(), step, nullptr, workspace.workspace(), {});

  std::vector<float> x(d.weight.size()), w = d.weight;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const MuonMomentum next = muon_momentum(d.first[i], d.gradient[i], step);
    d.first[i] = next.momentum, x[i] = next.update;
  }
  std::vector<double> sums((x.size() + norm_block - 1) / norm_block);
  square_sums(x, sums, pool);
  const float length =
      std::max(static_cast<float>(std::sqrt(fold_square_sums(sums))), step.epsilon);
  const bool tall = d.rows > d.cols;
  const std::int64_t m = std::min(d.rows, d.cols), n = std::max(d.rows, d.cols);
  for (float& value : x) value = rounded(value / length, DType::bf16);
  if (tall) x = turned(x, d.rows, d.cols);
  const auto [a, b, c] = step.coefficients;
  for (int i = 0; i < step.iterations; ++i) {
    std::vector<float> gram = tensor_product(x, x, n);
    for (float& value : gram) value = rounded(value, DType::bf16);
    const std::vector<float> square = tensor_product(gram, gram, m);
    for (std::size_t e = 0; e < gram.size(); ++e)
      gram[e] = rounded(muon_sum(b, gram[e], c, square[e]), DType::bf16);
    const std::vector<float> moved = tensor_product(gram, turned(x, m, n), m);
    for (std::size_t e = 0; e < x.size(); ++e)
      x[e] = rounded(muon_sum(a, x[e], 1.0f, moved[e]), DType::bf16);
  }
  if (tall) x = turned(x, m, n);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = muon_weight(w[i], x[i], step);
  d.round(w);
  expect_same_bits(d.device_weight.values(), w, "weights of (" + fuzz.drawn() + ")");
  d.device_weight.expect_guards("muon");
  expect_same_bits(d.device_first.values<float>(), d.first, "momentum");
  d.expect_copy(w);
}

}  // namespace rose::kernels::gpu
