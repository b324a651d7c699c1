// Norm tensors.

#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

namespace rose::kernels::autograd {

// x is [..., C], f32 on a CPU, f32 or bf16 on a GPU; weight and bias are [C]. On a GPU x may be part of a wider buffer.

/// y = x / sqrt(mean(x^2) + eps) * weight. With x [T, H, D] and weight [D] it is the norm per head. Saves x, weight and a number per row.
at::Tensor rmsnorm(const at::Tensor& x, const at::Tensor& weight, double eps);
at::Tensor layernorm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                     double eps);

/// {x + residual, rmsnorm of it}. Saves the sum.
std::pair<at::Tensor, at::Tensor> add_rmsnorm(const at::Tensor& x, const at::Tensor& residual,
                                              const at::Tensor& weight, double eps);

}  // namespace rose::kernels::autograd
