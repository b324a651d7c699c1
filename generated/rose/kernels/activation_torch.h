// Bend tensors.

#pragma once

#include <ATen/core/Tensor.h>

#include "rose/kernels/activation.h"

namespace rose::kernels::autograd {

// Tensors [..., C], f32 on a CPU, f32 or bf16 on a GPU, where they may be parts of a wider buffer.

at::Tensor silu(const at::Tensor& x);
at::Tensor gelu(const at::Tensor& x, Gelu kind);
/// silu(gate) * up.
at::Tensor silu_multiply(const at::Tensor& gate, const at::Tensor& up);

}  // namespace rose::kernels::autograd
