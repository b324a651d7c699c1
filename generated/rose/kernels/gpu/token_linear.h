// Add, norm and multiply a few rows, weights fetched ahead.

#pragma once

#include <cstdint>

#include "rose/kernels/gpu/linear.h"
#include "rose/kernels/gpu/stream.h"

namespace rose::kernels::gpu {

/// y = the product of `shape` (bias and activation too) with n, where n = x, or n = rmsnorm(x), or, with `add`,
/// sum = x + add and n = rmsnorm(sum). Bit for bit add_rmsnorm or rmsnorm, and then `linear`.
struct TokenLinear {
  Matrix x{};     ///< [M, K] bf16
  Matrix add{};   ///< [M, K] or none; needs a norm
  Matrix sum{};   ///< [M, K], other memory than x and add; with `add`
  Matrix norm{};  ///< [1, K] f32 or bf16, or none
  float eps = 0;
  Matrix
      w{};  ///< [N, K], or with SwiGLU [2N, K]: constant memory, read before the kernels before have ended
  const void* bias = nullptr;  ///< likewise
  Matrix y{};                  ///< [M, N]
};

/// Whether there is a kernel: bf16, at most 8 rows, widths that fit, on this device.
bool token_linear_fits(const LinearShape& shape);

/// Enqueues. Throws core::Error naming the argument that does not fit the shape.
void token_linear(const LinearShape& shape, const TokenLinear& arguments, Stream stream);

}  // namespace rose::kernels::gpu
