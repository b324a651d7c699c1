// Multiply tensors by a weight.

#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace rose::kernels::autograd {

/// y[..., N] = x[..., K] w[N, K]^T + bias[N]. On a GPU all are of one type, f32, f16 or bf16; on a CPU x and bias are f32, and w is of
/// any plain type. Saves x and w.
at::Tensor linear(const at::Tensor& x, const at::Tensor& w,
                  const std::optional<at::Tensor>& bias = {});

}  // namespace rose::kernels::autograd
