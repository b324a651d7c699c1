// Score logits and replace them by their gradient.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rose/core/parallel.h"

namespace rose::kernels {

/// losses[r] = -log softmax(logits[r])[targets[r]], in nats; then logits[r, v] becomes
/// scale * (softmax(logits[r])[v] - (v == targets[r])), the gradient of scale * sum of losses.
/// logits is [R, V]. A negative target is ignored: loss and gradient zero.
void cross_entropy(std::span<float> logits, std::int64_t rows,
                   std::span<const std::int32_t> targets, float scale, std::span<float> losses,
                   core::ThreadPool& pool, std::vector<float>& scratch);

}  // namespace rose::kernels
