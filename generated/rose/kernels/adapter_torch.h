// Add adapters to tensors.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace rose::kernels::autograd {

/// y + scale (x a^T) b^T: x [..., K], y [..., N], a [r, K], b [N, r]. f32 on a CPU; bf16 on a GPU, where r is a multiple of 8. All four
/// have gradients.
at::Tensor add_adapter(const at::Tensor& y, const at::Tensor& x, const at::Tensor& a,
                       const at::Tensor& b, double scale);

/// The adapter of some rows; without tensors: none.
struct AdapterOfRows {
  at::Tensor a, b;
  float scale = 1;
};
/// The same for rows that are sorted by adapter, in place and without gradients: group i has rows offsets[i] to offsets[i + 1] of x [M, K]
/// and y [M, N]. Every adapter has the same rank.
void add_adapters(const at::Tensor& y, const at::Tensor& x, std::span<const AdapterOfRows> groups,
                  std::span<const std::int32_t> offsets);

}  // namespace rose::kernels::autograd
