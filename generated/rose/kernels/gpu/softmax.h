// Turn each row into probabilities, on a GPU.

#pragma once

#include "rose/kernels/gpu/stream.h"

namespace rose::kernels::gpu {

/// kernels::softmax of every row; x and y are alike, f32, bf16 or f16, y may be x. Arithmetic is fp32, the result is rounded once.
void softmax(const Matrix& x, const Matrix& y, Stream stream);

/// kernels::softmax_backward with its order of the sum; y, dy and dx are alike, f32, bf16 or f16, dx may be y or dy. fp32 inside.
void softmax_backward(const Matrix& y, const Matrix& dy, const Matrix& dx, Stream stream);

}  // namespace rose::kernels::gpu
