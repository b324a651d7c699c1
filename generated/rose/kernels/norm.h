// Bring every row to a common scale.

#pragma once

#include <cstdint>
#include <span>

#include "rose/core/parallel.h"

namespace rose::kernels {

/// y = x / sqrt(mean(x^2) + eps) * weight, for each row of x [M, C]; weight is [C].
/// inv_rms [M], when not empty, receives 1 / sqrt(mean(x^2) + eps) for the backward pass. y may be x.
/// The norm of queries and keys per head is this function on [T * H, D].
void rmsnorm(std::span<const float> x, std::int64_t m, std::span<const float> weight, float eps,
             std::span<float> y, std::span<float> inv_rms, core::ThreadPool& pool);

/// y = (x - mean) / sqrt(var + eps) * weight + bias, with the biased variance; weight and bias are [C].
/// mean and inv_std [M], when not empty, receive the row statistics. y may be x.
void layernorm(std::span<const float> x, std::int64_t m, std::span<const float> weight,
               std::span<const float> bias, float eps, std::span<float> y, std::span<float> mean,
               std::span<float> inv_std, core::ThreadPool& pool);

}  // namespace rose::kernels
