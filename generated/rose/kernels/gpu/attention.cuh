// What the kernels of attention share.

#pragma once

#include <cstddef>
#include <cstdint>

#include "rose/kernels/numerics.h"

#ifdef __CUDACC__
#include "rose/kernels/gpu/cuda.cuh"
#include "rose/kernels/gpu/warpgroup.cuh"
#endif

namespace rose::kernels::gpu {

// Name what a launch is given.
struct AttentionCall {
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  void* out = nullptr;
  float* lse = nullptr;
  std::int64_t q_stride = 0, out_stride = 0;      // elements between tokens
  std::int64_t key_stride = 0, value_stride = 0;  // elements between key rows
  std::int64_t head_step =
      0;  // elements from one key head to the next; 0 in a cache, where it is in the row
  const std::int32_t* page_table = nullptr;  // null: packed rows
  std::int64_t table_stride = 0;
  int page_size = 0, page_shift = -1, pages = 0;  // page_shift: log2 of page_size, -1 if it is none
  int heads = 0, kv_heads = 0, head_dim = 0;
  float factor = 0.0f;  // scale * log2(e)
  int split = numerics::key_split;
  const std::int32_t *row_offsets = nullptr, *key_lengths = nullptr;
  const std::int32_t* items = nullptr;  // four words each
  std::int64_t item_count = 0;
  float* partials = nullptr;  // [slots, 16, head_dim + 2]
  std::int32_t* fault = nullptr;
  bool half = false;      // f16, else bf16
  bool warpgroup = true;  // may use wgmma
  bool turns = true;      // its computing warpgroups take turns
  int variant = 0;
};

void launch_attention_rows(const AttentionCall& call, void* stream);
void launch_attention_splits(const AttentionCall& call, void* stream);
void launch_attention_merge(const AttentionCall& call, void* stream);
/// Launches the kernel for Hopper, or says that it cannot: another device, another head dimension, or not wanted.
bool launch_attention_warpgroups(const AttentionCall& call, void* stream);
void launch_upload(const void* host, std::size_t bytes, void* device, void* stream);

#ifdef __CUDACC__

// The order of attention, in small functions that every kernel calls.

/// The maximum that exponents are taken against; a row that has seen no key yet uses 0.
__device__ __forceinline__ float anchor(float max) {
  return max == -INFINITY ? 0.0f : max;
}

/// The factor that brings sums relative to `before` to the maximum behind `anchor`: exactly 1 when it did not move.
__device__ __forceinline__ float rescale(float before, float anchor) {
  return exp2_approx(before - anchor);
}

/// The largest score of this row half (0: row g, 1: row g + 8) of a 16 x 8N tile of scores.
template <int N>
__device__ __forceinline__ float largest(const float (&s)[N][4], int half) {
  float max = -INFINITY;
  ROSE_UNROLL()
  for (int j = 0; j < N; ++j) max = fmaxf(max, fmaxf(s[j][2 * half], s[j][2 * half + 1]));
  return quad_max(max);
}

/// Turns scores into weights and returns this lane's sum of them: its columns, ascending.
template <int N>
__device__ __forceinline__ float soften(float (&s)[N][4], int half, float factor, float anchor) {
  float sum = 0.0f;
  ROSE_UNROLL()
  for (int j = 0; j < N; ++j) {
    ROSE_UNROLL()
    for (int i = 2 * half; i < 2 * half + 2; ++i) {
      s[j][i] = exp2_approx(fmaf(s[j][i], factor, -anchor));
      sum += s[j][i];
    }
  }
  return sum;
}

/// Two factors that bring a pair of states to their common maximum.
struct Merge {
  float max, left, right;
  __device__ __forceinline__ Merge(float a, float b)
      : max(fmaxf(a, b)), left(rescale(a, anchor(max))), right(rescale(b, anchor(max))) {}
  __device__ __forceinline__ float operator()(float a, float b) const {
    return __fadd_rn(__fmul_rn(a, left), __fmul_rn(b, right));  // each rounded: either order
  }
};

/// One division at the end. A row without keys is 0.
__device__ __forceinline__ float inverse(float sum) {
  return sum == 0.0f ? 0.0f : 1.0f / sum;
}
__device__ __forceinline__ float log_sum_exp(float max, float sum) {
  return (max + log2f(sum)) * 0.69314718056f;
}

// Find keys.

/// The row of keys and values that holds this position, -1 for none. Packed rows begin at first_token.
__device__ __forceinline__ int key_row(const AttentionCall& call, int sequence, int kv_head,
                                       int first_token, int position) {
  if (call.page_table == nullptr) return first_token + position;
  const int index = call.page_shift >= 0 ? position >> call.page_shift : position / call.page_size;
  const int slot = position - index * call.page_size;
  const int page = __ldg(call.page_table + sequence * call.table_stride + index);
  if (page < 0 || page >= call.pages) {
    if (call.fault != nullptr) *call.fault = 1;
    return -1;
  }
  return (page * call.kv_heads + kv_head) * call.page_size + slot;
}

/// What an item's sequence looks like.
struct Span {
  int first_token, tokens, keys;
  __device__ __forceinline__ Span(const AttentionCall& call, int sequence)
      : first_token(call.row_offsets[sequence]),
        tokens(call.row_offsets[sequence + 1] - first_token),
        keys(call.key_lengths[sequence]) {}
  /// How many keys the i-th query sees.
  __device__ __forceinline__ int limit(int i) const { return max(0, keys - tokens + i + 1); }
};

#endif  // __CUDACC__

}  // namespace rose::kernels::gpu
