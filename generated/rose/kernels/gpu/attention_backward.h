// Back through attention on a GPU, in one order.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rose/kernels/attention.h"
#include "rose/kernels/gpu/stream.h"

namespace rose::kernels::gpu {

/// What the backward pass of one batch needs: made on the host from the lengths, used by every layer.
struct AttentionBackwardPlan {
  AttentionShape shape;
  std::int64_t tokens = 0, sequences = 0;
  bool warpgroup = true;            ///< may use wgmma where the device has it (same bits)
  bool pairs = false;               ///< there, two warpgroups share what a block walks (same bits)
  std::vector<std::int32_t> words;  ///< what the kernels read, in one upload
  std::int64_t key_blocks = 0, query_blocks = 0;            ///< work items
  std::int64_t key_items = 0, query_items = 0;              ///< where in words
  std::int64_t key_pair_blocks = 0, query_pair_blocks = 0;  ///< items of twice the rows
  std::int64_t key_pair_items = 0, query_pair_items = 0;

  std::size_t plan_bytes() const;
  std::size_t workspace_bytes() const;  ///< the plan, and one number per token and head
};

/// Packed rows: row s holds tokens row_offsets[s] .. row_offsets[s + 1] - 1, causal. Head dimensions 64, 96, 128 and 256.
AttentionBackwardPlan plan_attention_backward(const AttentionShape& shape,
                                              std::span<const std::int32_t> row_offsets);

/// Copy the plan to the front of the workspace. The words must outlive the copy.
void upload(const AttentionBackwardPlan& plan, Workspace workspace, Stream stream);

/// What the forward pass read and left behind. q, out, dout [T, heads * head_dim]; k, v [T, kv_heads * head_dim];
/// lse [T, heads]. All of one type, bf16, f16 or f32; rows may be strided.
struct AttentionSaved {
  Matrix q, k, v, out;
  const float* lse = nullptr;
};

/// dq, dk and dv are overwritten, shaped as q, k and v. No atomics: the same inputs give the same bits.
void attention_backward(const AttentionBackwardPlan& plan, const AttentionSaved& saved,
                        const Matrix& dout, const Matrix& dq, const Matrix& dk, const Matrix& dv,
                        Workspace workspace, Stream stream);

}  // namespace rose::kernels::gpu
