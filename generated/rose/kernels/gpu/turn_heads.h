// Norm and turn queries and keys in one visit, and back.

#pragma once

#include <cstddef>
#include <cstdint>

#include "rose/kernels/gpu/stream.h"

namespace rose::kernels::gpu {

/// H heads of queries, then G of keys, D elements each, side by side in a row.
struct HeadTurn {
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  Matrix q_norm{}, k_norm{};  ///< [1, D]
  float eps = 0;
  const float *cos = nullptr, *sin = nullptr;  ///< [T, D/2]
};

/// Whether a head divides among the lanes of a warp: 32, 64, 128, 256 or 512 elements.
constexpr bool can_turn_heads(std::int64_t head_dim) {
  return head_dim >= 32 && head_dim <= 512 && (head_dim & (head_dim - 1)) == 0;
}

/// y = rope(rmsnorm(x)) of every head of x [T, (H + G) D], with the bits of rmsnorm_heads and rope; y may be x. q_inv [T, H] and
/// k_inv [T, G] receive 1/rms.
void turn_heads(const HeadTurn& turn, const Matrix& x, const Matrix& y, float* q_inv, float* k_inv,
                Stream stream);

/// The gradient of y becomes that of x, in its place; dq_norm [D] and dk_norm [D] are added to. The arithmetic is fp32, each result
/// is rounded once. No atomics.
void turn_heads_backward(const HeadTurn& turn, const Matrix& x, const float* q_inv,
                         const float* k_inv, const Matrix& gradient, float* dq_norm, float* dk_norm,
                         Workspace workspace, Stream stream);
std::size_t turn_heads_backward_workspace(std::int64_t head_dim);

}  // namespace rose::kernels::gpu
