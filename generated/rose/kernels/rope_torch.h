// Turn tensors by position.

#pragma once

#include <ATen/core/Tensor.h>

namespace rose::kernels::autograd {

/// x [T, H, D] with element i of each head paired with element i + D/2; cos and sin [T, D/2] are fp32, without gaps, and constants.
/// f32 on a CPU; f32 or bf16 on a GPU, where x may be part of a wider buffer.
at::Tensor rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

}  // namespace rose::kernels::autograd
