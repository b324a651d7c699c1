// Go back through a norm.

#pragma once

#include <cstdint>
#include <span>

#include "rose/core/parallel.h"
#include "rose/kernels/linear_backward.h"

namespace rose::kernels {

/// With g = dy * weight and h = x * inv_rms: dx = inv_rms * (g - h * mean(g * h)) per row, and
/// dweight[c] += sum over rows of dy * h. x and dy are [M, C], inv_rms [M] as the forward pass gave it.
/// dx may be dy. An empty dweight is not wanted.
void rmsnorm_backward(std::span<const float> x, std::int64_t m, std::span<const float> weight,
                      std::span<const float> inv_rms, std::span<const float> dy,
                      std::span<float> dx, Into into, std::span<float> dweight,
                      core::ThreadPool& pool);

/// The same with h = (x - mean) * inv_std, and mean(g) subtracted as well; dbias[c] += sum of dy.
void layernorm_backward(std::span<const float> x, std::int64_t m, std::span<const float> weight,
                        std::span<const float> mean, std::span<const float> inv_std,
                        std::span<const float> dy, std::span<float> dx, Into into,
                        std::span<float> dweight, std::span<float> dbias, core::ThreadPool& pool);

}  // namespace rose::kernels
