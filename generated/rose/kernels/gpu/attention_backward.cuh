// What a launch of the backward pass is given.

#pragma once

#include <cstdint>

namespace rose::kernels::gpu {

struct AttentionBackwardCall {
  const void *q = nullptr, *k = nullptr, *v = nullptr, *out = nullptr, *dout = nullptr;
  void *dq = nullptr, *dk = nullptr, *dv = nullptr;
  std::int64_t q_stride = 0, k_stride = 0, v_stride = 0, out_stride = 0, dout_stride = 0;
  std::int64_t dq_stride = 0, dk_stride = 0, dv_stride = 0;  // elements between tokens
  const float* lse = nullptr;                                // [T, heads]
  float* delta = nullptr;                                    // [T, heads]
  const std::int32_t* row_offsets = nullptr;
  const std::int32_t *key_items = nullptr,
                     *query_items = nullptr;  // sequence, first row, head, unused
  std::int64_t key_blocks = 0, query_blocks = 0, tokens = 0;
  int heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0.0f, factor = 0.0f;  // factor: scale * log2(e)
  bool half = false;                  // f16, else bf16
  bool warpgroup = true;              // may use wgmma
};

/// The gradients of keys, values and queries, on Hopper; or says that it cannot. delta must be there.
bool launch_attention_backward_warpgroups(const AttentionBackwardCall& call, void* stream);
void launch_attention_backward(const AttentionBackwardCall& call, void* stream);

}  // namespace rose::kernels::gpu
