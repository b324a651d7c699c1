// Score rows of logits that count differently, and replace them by their gradient.

#pragma once

#include <cstdint>
#include <span>

#include "rose/core/parallel.h"

namespace rose::kernels {

/// logprobs[r] = log softmax(logits[r])[targets[r]], lse[r] the row's log-sum-exp; then logits[r, v] becomes
/// (scales[r] * (1 + (2 z) lse[r])) * softmax(logits[r])[v] - scales[r] * (v == targets[r]),
/// each operation rounded once: the gradient of sum of scales * (-logprob + z * lse^2). logits is [R, V], targets in [0, V).
/// With equal scales and z = 0 these are the bits of cross_entropy.
void weighted_cross_entropy(std::span<float> logits, std::int64_t rows,
                            std::span<const std::int32_t> targets, std::span<const float> scales,
                            float z, std::span<float> logprobs, std::span<float> lse,
                            core::ThreadPool& pool);

}  // namespace rose::kernels
