// Norm one row as a GPU does, one number at a time.

#pragma once

#include <cmath>
#include <span>

#include "rose/kernels/rows.h"

namespace rose::kernels::reference {

// RMSNorm rounds before the weight.

/// Returns 1 / sqrt(mean(x^2) + eps).
inline float rmsnorm_row(std::span<const float> x, std::span<const float> weight, float eps,
                         DType dtype, std::span<float> y) {
  const auto at = [](std::int64_t k) { return static_cast<std::size_t>(k); };
  const auto count = static_cast<std::int64_t>(x.size());
  const float squares = row_total(
      count, [&](float sum, std::int64_t k) { return std::fma(x[at(k)], x[at(k)], sum); });
  const float inv = 1.0f / std::sqrt(squares / static_cast<float>(count) + eps);
  for (std::size_t k = 0; k < x.size(); ++k) {
    y[k] = round_to(dtype, round_to(dtype, x[k] * inv) * weight[k]);
  }
  return inv;
}

// LayerNorm centres first and rounds once.
struct RowMoments {
  float mean, inv_std;
};
inline RowMoments layernorm_row(std::span<const float> x, std::span<const float> weight,
                                std::span<const float> bias, float eps, DType dtype,
                                std::span<float> y) {
  const auto at = [](std::int64_t k) { return static_cast<std::size_t>(k); };
  const auto count = static_cast<std::int64_t>(x.size());
  const float mean = row_total(count, [&](float sum, std::int64_t k) { return sum + x[at(k)]; }) /
                     static_cast<float>(count);
  const float squares = row_total(count, [&](float sum, std::int64_t k) {
    const float d = x[at(k)] - mean;
    return std::fma(d, d, sum);
  });
  const float inv = 1.0f / std::sqrt(squares / static_cast<float>(count) + eps);
  for (std::size_t k = 0; k < x.size(); ++k) {
    y[k] = round_to(dtype, (x[k] - mean) * inv * weight[k] + bias[k]);
  }
  return {mean, inv};
}

}  // namespace rose::kernels::reference
