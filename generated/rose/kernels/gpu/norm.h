// Bring every row to a common scale, on a GPU.

#pragma once

#include <cstddef>

#include "rose/kernels/gpu/stream.h"

namespace rose::kernels::gpu {

// x and y are [M, C] of f32, bf16 or f16, alike; weights and biases are [1, C], of any of these, both alike. Statistics are fp32 [M]
// or null: 1 / sqrt(mean(x^2) + eps), or the mean and 1 / sqrt(var + eps). y may be x.

void rmsnorm(const Matrix& x, const Matrix& weight, float eps, const Matrix& y, float* inv_rms,
             Stream stream);
void layernorm(const Matrix& x, const Matrix& weight, const Matrix& bias, float eps,
               const Matrix& y, float* mean, float* inv_std, Stream stream);

/// Every run of D = weight.cols elements of a row is a row of its own: the norm of queries and keys per head.
/// x and y are [T, H * D] and may be parts of a wider matrix; inv_rms is [T * H] or null.
void rmsnorm_heads(const Matrix& x, const Matrix& weight, float eps, const Matrix& y,
                   float* inv_rms, Stream stream);

/// sum = x + residual, rounded; then y = norm(sum). sum may be x or residual; y may be x.
void add_rmsnorm(const Matrix& x, const Matrix& residual, const Matrix& weight, float eps,
                 const Matrix& sum, const Matrix& y, float* inv_rms, Stream stream);
void add_layernorm(const Matrix& x, const Matrix& residual, const Matrix& weight,
                   const Matrix& bias, float eps, const Matrix& sum, const Matrix& y, float* mean,
                   float* inv_std, Stream stream);

// And back.

/// With g = dy * weight, h = x * inv_rms: dx = inv_rms * (g - h * mean(g * h)) per row, plus `add` where it has memory (the
/// gradient that flows past the norm), rounded once; dweight [C] += sum over rows of dy * h, fp32. dx may be dy or add.
void rmsnorm_backward(const Matrix& x, const Matrix& weight, const float* inv_rms, const Matrix& dy,
                      const Matrix& add, const Matrix& dx, float* dweight, Workspace workspace,
                      Stream stream);
/// The same with h = (x - mean) * inv_std, and mean(g) subtracted as well; dbias [C] += sum over rows of dy.
void layernorm_backward(const Matrix& x, const Matrix& weight, const float* mean,
                        const float* inv_std, const Matrix& dy, const Matrix& add, const Matrix& dx,
                        float* dweight, float* dbias, Workspace workspace, Stream stream);
/// rmsnorm_backward for every run of weight.cols elements of a row; inv_rms is [T * H].
void rmsnorm_heads_backward(const Matrix& x, const Matrix& weight, const float* inv_rms,
                            const Matrix& dy, const Matrix& dx, float* dweight, Workspace workspace,
                            Stream stream);
/// Bytes that a backward call needs for `rows` rows (heads counted) of width `cols`.
std::size_t norm_backward_workspace(std::int64_t rows, std::int64_t cols);

}  // namespace rose::kernels::gpu
