// Go back through an activation.

#pragma once

#include <span>

#include "rose/core/parallel.h"
#include "rose/kernels/activation.h"

namespace rose::kernels {

/// dx = dy * gelu'(x), elementwise. dx may be dy.
void gelu_backward(std::span<const float> x, std::span<const float> dy, std::span<float> dx,
                   Gelu kind, core::ThreadPool& pool);

/// dx = dy * silu'(x), elementwise. dx may be dy.
void silu_backward(std::span<const float> x, std::span<const float> dy, std::span<float> dx,
                   core::ThreadPool& pool);

/// For y = silu(gate) * up: dgate = dy * up * s * (1 + gate * (1 - s)) with s = 1 / (1 + exp(-gate)),
/// and dup = dy * gate * s. dgate or dup may be dy.
void silu_multiply_backward(std::span<const float> gate, std::span<const float> up,
                            std::span<const float> dy, std::span<float> dgate, std::span<float> dup,
                            core::ThreadPool& pool);

}  // namespace rose::kernels
