// Softmax, cross-entropy and log-probabilities beside double precision.
#pragma once

#include <cmath>

#include "rose/kernels/gpu/cross_entropy.h"
#include "rose/kernels/gpu/softmax.h"
#include "twin_elementwise.h"

namespace rose::kernels::gpu {

inline void twin_softmax(Fuzz& fuzz) {
  const std::int64_t rows = fuzz.size(60), cols = fuzz.some(20'000);
  const DType dtype = row_type(fuzz);
  const Input x = fuzz.input(rows, cols, dtype, 3);
  const Output y = fuzz.output(rows, cols, dtype);
  softmax(x.view(), y.view(), {});
  std::vector<double> reference, bounds;
  for (std::int64_t r = 0; r < rows; ++r) {
    double highest = -INFINITY, sum = 0, range = 0;
    for (std::int64_t c = 0; c < cols; ++c) highest = std::max(highest, x.at(r, c));
    for (std::int64_t c = 0; c < cols; ++c) sum += std::exp(x.at(r, c) - highest);
    for (std::int64_t c = 0; c < cols; ++c) range = std::max(range, highest - x.at(r, c));
    const double chain = gamma(8.0 * static_cast<double>((cols + 2047) / 2048) + 12);
    for (std::int64_t c = 0; c < cols; ++c) {
      const double p = std::exp(x.at(r, c) - highest) / sum;
      reference.push_back(p);
      bounds.push_back(p * (chain + (4 + range) * fast_unit));
    }
  }
  fuzz.expect(y, reference, bounds, "softmax");
}

inline void twin_softmax_backward(Fuzz& fuzz) {
  const std::int64_t rows = fuzz.size(40), cols = fuzz.some(9000);
  const DType dtype = row_type(fuzz);
  const Input y = fuzz.input(rows, cols, dtype), dy = fuzz.input(rows, cols, dtype);
  const Output dx = fuzz.output(rows, cols, dtype);
  softmax_backward(y.view(), dy.view(), dx.view(), {});
  std::vector<double> reference, bounds;
  for (std::int64_t r = 0; r < rows; ++r) {
    double mean = 0, size = 0;
    for (std::int64_t c = 0; c < cols; ++c) {
      mean += y.at(r, c) * dy.at(r, c);
      size += std::abs(y.at(r, c) * dy.at(r, c));
    }
    const double off = size * gamma(8.0 * static_cast<double>((cols + 2047) / 2048) + 12);
    for (std::int64_t c = 0; c < cols; ++c) {
      const double p = std::abs(y.at(r, c)), g = std::abs(dy.at(r, c) - mean);
      reference.push_back(y.at(r, c) * (dy.at(r, c) - mean));
      bounds.push_back(p * (off + 0x1p-22 * g));
    }
  }
  fuzz.expect(dx, reference, bounds, "dx");
}

/// Log-sum-exp of a row of logits, and what fp32 in the contract's order may be off by.
struct RowScore {
  double lse, error;
};
inline RowScore row_score(const Input& z, std::int64_t r, std::int64_t cols) {
  double highest = -INFINITY, lowest = INFINITY, sum = 0;
  for (std::int64_t c = 0; c < cols; ++c) {
    highest = std::max(highest, z.at(r, c));
    lowest = std::min(lowest, z.at(r, c));
  }
  for (std::int64_t c = 0; c < cols; ++c) sum += std::exp(z.at(r, c) - highest);
  const double lse = highest + std::log(sum);
  const double links = gamma(24 + static_cast<double>((cols + 127) / 128));
  return {lse,
          links + (4 + highest - lowest) * fast_unit + 0x1p-22 * (std::abs(lse) + std::log(sum))};
}

inline void twin_cross_entropy(Fuzz& fuzz) {
  const bool large = fuzz.below(6) == 0;
  const std::int64_t rows = large ? 3 : fuzz.size(20);
  const std::int64_t cols =
      large ? fuzz.one_of<std::int64_t>({50'257, 50'304, 151'936, 262'144}) : fuzz.some(5000);
  fuzz.note(std::to_string(cols));
  const DType dtype = fuzz.one_of({DType::bf16, DType::f32, DType::f16});
  const float scale = fuzz.one_of({1.0f, 0.125f, 0.001f});
  const Input z = fuzz.input(rows, cols, DType::f32, 4);
  std::vector<std::int32_t> ids;
  for (std::int64_t r = 0; r < rows; ++r) {
    ids.push_back(fuzz.below(5) == 0
                      ? -1
                      : static_cast<std::int32_t>(fuzz.below(static_cast<std::uint32_t>(cols))));
  }
  const Integers targets(ids);
  const Output gradient = fuzz.output(rows, cols, dtype);
  const auto bytes = static_cast<std::size_t>(rows) * sizeof(float);
  Buffer losses(bytes), lse(bytes), logprob(bytes), lse_alone(bytes);
  cross_entropy(z.view(), targets.data(), scale, gradient.view(), losses.as<float>(),
                lse.as<float>(), {});
  token_logprob(z.view(), targets.data(), logprob.as<float>(), lse_alone.as<float>(), {});
  std::vector<double> loss, loss_bound, sums, sums_bound, slope, slope_bound;
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto [sum, error] = row_score(z, r, cols);
    const std::int32_t t = targets[r];
    sums.push_back(sum);
    sums_bound.push_back(error);
    loss.push_back(t < 0 ? 0 : sum - z.at(r, t));
    loss_bound.push_back(t < 0 ? 0 : error + 0x1p-23 * std::abs(sum - z.at(r, t)));
    for (std::int64_t c = 0; c < cols; ++c) {
      const double p = std::exp(z.at(r, c) - sum);
      const double off =
          p * (error + (4 + std::abs(z.at(r, c) - sum)) * fast_unit) + (c == t ? 0x1p-23 : 0.0);
      slope.push_back(t < 0 ? 0 : double{scale} * (p - (c == t ? 1 : 0)));
      slope_bound.push_back(t < 0 ? 0 : double{scale} * off);
    }
  }
  fuzz.expect(gradient, slope, slope_bound, "dlogits");
  expect_close(losses.values<float>(), loss, loss_bound, DType::f32,
               "losses of (" + fuzz.drawn() + ")");
  expect_close(lse.values<float>(), sums, sums_bound, DType::f32, "lse of (" + fuzz.drawn() + ")");
  // One kernel, whoever asks: the same bits.
  expect_same_bits(lse_alone.values<float>(), lse.values<float>(),
                   "lse of both calls, (" + fuzz.drawn() + ")");
  std::vector<float> negated = losses.values<float>(), scored = logprob.values<float>();
  for (std::size_t r = 0; r < negated.size(); ++r) {
    if (ids[r] < 0) {
      EXPECT_TRUE(std::isnan(scored[r]));
      scored[r] = 0;
    }
    negated[r] = ids[r] < 0 ? 0.0f : -negated[r];
  }
  expect_same_bits(scored, negated, "logprob of (" + fuzz.drawn() + ")");
}

}  // namespace rose::kernels::gpu
