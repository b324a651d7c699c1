// What a launch of the backward pass is given.

#pragma once

#include <cstdint>

#include "rose/kernels/dtype.h"

#ifdef __CUDACC__
#include "rose/kernels/gpu/attention.cuh"
#endif

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
  float scale = 0.0f, factor = 0.0f;                                // factor: scale * log2(e)
  DType dtype = DType::bf16;                                        // bf16, f16 or f32
  bool warpgroup = true;                                            // may use wgmma
  bool pairs = false;                                               // two warpgroups to a block
  const std::int32_t *key_pairs = nullptr, *query_pairs = nullptr;  // items of 128 rows
  std::int64_t key_pair_blocks = 0, query_pair_blocks = 0;
};

/// The gradients of keys, values and queries, on Hopper; or says that it cannot. delta must be there.
bool launch_attention_backward_warpgroups(const AttentionBackwardCall& call, void* stream);
/// The same in fp32, anywhere.
void launch_attention_backward_fp32(const AttentionBackwardCall& call, void* stream);
void launch_attention_backward(const AttentionBackwardCall& call, void* stream);

// Find the rows of a work item.
#ifdef __CUDACC__

struct BackwardItem {
  int first_token, tokens, first, head;

  __device__ __forceinline__ BackwardItem(const AttentionBackwardCall& call,
                                          const std::int32_t* items) {
    const int4 item = __ldg(reinterpret_cast<const int4*>(items) + blockIdx.x);
    first_token = call.row_offsets[item.x];
    tokens = call.row_offsets[item.x + 1] - first_token;
    first = item.y;
    head = item.z;
  }
  /// The part of a matrix that is this row of the batch, from one head on.
  template <class T, int D>
  __device__ __forceinline__ const T* rows(const void* data, std::int64_t stride, int h) const {
    return static_cast<const T*>(data) + first_token * stride + h * D;
  }
  template <class T, int D>
  __device__ __forceinline__ T* rows(void* data, std::int64_t stride, int h) const {
    return static_cast<T*>(data) + first_token * stride + h * D;
  }
  /// A query's log-sum-exp to base 2, and what its output says about its own gradient. Zeros behind the last.
  __device__ __forceinline__ float lse(const AttentionBackwardCall& call, int query, int h) const {
    if (query >= tokens) return 0.0f;
    return call.lse[static_cast<std::int64_t>(first_token + query) * call.heads + h] * log2_e;
  }
  __device__ __forceinline__ float delta(const AttentionBackwardCall& call, int query,
                                         int h) const {
    if (query >= tokens) return 0.0f;
    return call.delta[static_cast<std::int64_t>(first_token + query) * call.heads + h];
  }
};

// Recover weights, and turn gradients of weights into gradients of scores.

/// A number for every column, in shared memory, or for both rows of a fragment, in registers: what entry i of columns c and c + 1 uses.
struct PerColumn {
  const float* at;
  __device__ __forceinline__ float4 operator()(int column) const {
    const float2 x = *reinterpret_cast<const float2*>(at + column);
    return make_float4(x.x, x.y, x.x, x.y);
  }
};
struct PerRow {
  float at[2];
  __device__ __forceinline__ float4 operator()(int) const {
    return make_float4(at[0], at[0], at[1], at[1]);
  }
};

/// Columns from `first` on. hidden(column, h): row half h and this column do not see each other.
template <int N, class Numbers, class Hidden>
__device__ __forceinline__ void recover_weights(float (&s)[N][4], int first, float factor,
                                                const Numbers& lse, const Hidden& hidden) {
  ROSE_UNROLL()
  for (int j = 0; j < N; ++j) {
    const int column = first + j * 8 + static_cast<int>(threadIdx.x) % 4 * 2;
    const float4 of = lse(column);
    const float by[4] = {of.x, of.y, of.z, of.w};
    ROSE_UNROLL()
    for (int i = 0; i < 4; ++i) {
      const float p = exp2_approx(fmaf(s[j][i], factor, -by[i]));
      s[j][i] = hidden(column + i % 2, i / 2) ? 0.0f : p;
    }
  }
}
template <int N, class Numbers>
__device__ __forceinline__ void to_slopes(float (&ds)[N][4], const float (&p)[N][4], int first,
                                          const Numbers& delta) {
  ROSE_UNROLL()
  for (int j = 0; j < N; ++j) {
    const float4 of = delta(first + j * 8 + static_cast<int>(threadIdx.x) % 4 * 2);
    const float by[4] = {of.x, of.y, of.z, of.w};
    ROSE_UNROLL()
    for (int i = 0; i < 4; ++i) ds[j][i] = p[j][i] * (ds[j][i] - by[i]);
  }
}

// Store 16 rows of one warp, scaled and rounded.
template <class T, int N>
__device__ __forceinline__ void store_rows(const float (&c)[N][4], T* to, std::int64_t stride,
                                           int first, int end, float scale) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  ROSE_UNROLL()
  for (int h = 0; h < 2; ++h) {
    const int row = first + lane / 4 + 8 * h;
    if (row >= end) continue;
    ROSE_UNROLL()
    for (int j = 0; j < N; ++j) {
      *reinterpret_cast<std::uint32_t*>(to + row * stride + j * 8 + lane % 4 * 2) =
          pack<T>(c[j][2 * h] * scale, c[j][2 * h + 1] * scale);
    }
  }
}

#endif  // __CUDACC__

}  // namespace rose::kernels::gpu
