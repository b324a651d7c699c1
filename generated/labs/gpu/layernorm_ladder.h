// Name the rungs; merge what is known of two parts of a row.

#pragma once

#include <cstdint>

#include "labs/gpu/rung.h"

namespace rose::labs {

/// y[r, c] = (x[r, c] - mean of row r) / sqrt(variance of row r + epsilon); both contiguous, bf16, of the same shape, at multiples of
/// 16 bytes, with columns that are a multiple of eight.
using LayernormRows = void(const gpu::Matrix& x, const gpu::Matrix& y, gpu::Stream stream);
inline constexpr float layernorm_epsilon = 1e-5f;

Rungs<LayernormRows> layernorm_ladder();

/// The longest row that the last rung holds.
inline constexpr std::int64_t layernorm_held = 8192;

/// Throws core::Error (invalid_argument) naming x or y.
void check_layernorm(const gpu::Matrix& x, const gpu::Matrix& y, std::int64_t most);

/// Of some numbers: how many, their mean, and the sum of squared differences from it.
struct Moments {
  float count, mean, squares;
};

inline Moments merge(const Moments& a, const Moments& b) {
  const float count = a.count + b.count;
  if (b.count == 0.0f) return a;
  const float delta = b.mean - a.mean, share = b.count / count;
  return {count, a.mean + delta * share, a.squares + b.squares + delta * delta * a.count * share};
}

}  // namespace rose::labs
