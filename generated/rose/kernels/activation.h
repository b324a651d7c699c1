// Bend the hidden units.

#pragma once

#include <span>

#include "rose/core/parallel.h"

namespace rose::kernels {

/// Which GELU: x * Phi(x) with the exact error function, or GPT-2's tanh approximation of it.
enum class Gelu { exact, tanh };

/// y = gelu(x), elementwise. y may be x.
void gelu(std::span<const float> x, std::span<float> y, Gelu kind, core::ThreadPool& pool);

/// y = silu(x) = x / (1 + exp(-x)), elementwise. y may be x.
void silu(std::span<const float> x, std::span<float> y, core::ThreadPool& pool);

/// out = silu(gate) * up with silu(z) = z / (1 + exp(-z)): the middle of SwiGLU. out may be gate or up.
void silu_multiply(std::span<const float> gate, std::span<const float> up, std::span<float> out,
                   core::ThreadPool& pool);

}  // namespace rose::kernels
