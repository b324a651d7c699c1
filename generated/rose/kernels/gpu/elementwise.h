// Operations whose outputs look at one position each.

#pragma once

#include "rose/kernels/activation.h"
#include "rose/kernels/cast.h"
#include "rose/kernels/gpu/stream.h"

namespace rose::kernels::gpu {

// All matrices of a call have the same shape and, but for the casts, the same type: f32, bf16 or f16. An output may be an input.

/// out = a + b, rounded once: the residual stream.
void add(const Matrix& a, const Matrix& b, const Matrix& out, Stream stream);

/// out = silu(gate) * up. In bf16 silu(gate) is rounded, and then the product: what two operations would do.
void silu_multiply(const Matrix& gate, const Matrix& up, const Matrix& out, Stream stream);
/// The gradients of gate and up; the arithmetic is fp32, each result is rounded once.
void silu_multiply_backward(const Matrix& gate, const Matrix& up, const Matrix& dy,
                            const Matrix& dgate, const Matrix& dup, Stream stream);

void silu(const Matrix& x, const Matrix& out, Stream stream);
void silu_backward(const Matrix& x, const Matrix& dy, const Matrix& dx, Stream stream);
void gelu(const Matrix& x, const Matrix& out, Gelu kind, Stream stream);
void gelu_backward(const Matrix& x, const Matrix& dy, const Matrix& dx, Gelu kind, Stream stream);

/// f32 to bf16, bf16 to f32, or a plain copy.
void cast(const Matrix& x, const Matrix& out, Stream stream);
/// f32 to bf16 by chance: bit for bit kernels::to_bf16_stochastic over the rows one after the other.
void cast_stochastic(const Matrix& x, const RoundingKey& key, const Matrix& out, Stream stream);

}  // namespace rose::kernels::gpu
