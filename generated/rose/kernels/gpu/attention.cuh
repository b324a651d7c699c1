// What the kernels of attention share.

#pragma once

#include <cstddef>
#include <cstdint>

#include "rose/kernels/dtype.h"
#include "rose/kernels/numerics.h"

#ifdef __CUDACC__
#include <cuda_fp8.h>

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
  DType dtype = DType::bf16;  // bf16, f16 or f32
  bool bytes = false;         // keys and values are e4m3 numbers, times the scales of their head
  const float *key_scale = nullptr, *value_scale = nullptr;  // [kv_heads]; null: 1
  std::int64_t key_rows = 0;                                 // rows that there are of keys
  bool boxes = false;                                        // whole tiles are fetched as boxes
  bool warpgroup = true;                                     // may use wgmma
  bool turns = true;                                         // its computing warpgroups take turns
};

/// The kernel for these items: for many rows, for splits, and the merge of splits.
void launch_attention_rows(const AttentionCall& call, void* stream);
/// Splits on Hopper, through a cache whose pages suit it; or says that it cannot.
bool launch_attention_pages(const AttentionCall& call, void* stream);
void launch_attention_splits(const AttentionCall& call, void* stream);
void launch_attention_merge(const AttentionCall& call, void* stream);
/// Launches the kernel for Hopper, or says that it cannot: another device, another head dimension, or not wanted.
bool launch_attention_warpgroups(const AttentionCall& call, void* stream);
/// Either kind of item in fp32.
void launch_attention_fp32(const AttentionCall& call, bool by_split, void* stream);
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

// Merge two states, and finish one.

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

// Mask, weigh and round a tile of scores.

/// Scores of keys that a row does not see count for nothing. The tile begins at key `first`.
template <int N>
__device__ __forceinline__ void mask(float (&s)[N][4], int first, const int (&limit)[2]) {
  const int column = first + static_cast<int>(threadIdx.x) % 4 * 2;
  ROSE_UNROLL()
  for (int j = 0; j < N; ++j) {
    ROSE_UNROLL()
    for (int i = 0; i < 4; ++i) {
      if (column + j * 8 + i % 2 >= limit[i / 2]) s[j][i] = -INFINITY;
    }
  }
}

/// Turns the scores of both rows into weights; maxima and sums move on. Earlier outputs are to be multiplied with `by`.
template <int N>
__device__ __forceinline__ void weigh(float (&s)[N][4], float factor, float (&max)[2],
                                      float (&sum)[2], float (&by)[2]) {
  ROSE_UNROLL()
  for (int h = 0; h < 2; ++h) {
    const float before = max[h];
    max[h] = fmaxf(before, largest(s, h) * factor);
    const float base = anchor(max[h]);
    by[h] = rescale(before, base);
    sum[h] = fmaf(sum[h], by[h], soften(s, h, factor, base));
  }
}

/// Columns 16 kk to 16 kk + 15 of a 16 x 8N tile of fp32, rounded, as the left operand of a further product.
template <class T, int N>
__device__ __forceinline__ void as_left(std::uint32_t (&a)[4], const float (&c)[N][4], int kk) {
  a[0] = pack<T>(c[2 * kk][0], c[2 * kk][1]);
  a[1] = pack<T>(c[2 * kk][2], c[2 * kk][3]);
  a[2] = pack<T>(c[2 * kk + 1][0], c[2 * kk + 1][1]);
  a[3] = pack<T>(c[2 * kk + 1][2], c[2 * kk + 1][3]);
}

// Fold a split into those before it, and store what comes of it.
template <int D, int Threads>
struct ClosedSplits {
  float* at;  // element i of this thread is at[i * Threads]
  float max[2] = {-INFINITY, -INFINITY}, sum[2] = {};

  __device__ __forceinline__ void fold(bool first, const float (&open)[D / 8][4],
                                       const float (&split_max)[2], const float (&split_sum)[2]) {
    const float total[2] = {quad_sum(split_sum[0]), quad_sum(split_sum[1])};
    const Merge merge[2] = {{max[0], split_max[0]}, {max[1], split_max[1]}};
    if (first) {
      ROSE_UNROLL()
      for (int i = 0; i < D / 2; ++i) at[i * Threads] = open[i / 4][i % 4];
    } else {
      ROSE_UNROLL()
      for (int i = 0; i < D / 2; ++i) {
        at[i * Threads] = merge[i % 4 / 2](at[i * Threads], open[i / 4][i % 4]);
      }
    }
    ROSE_UNROLL()
    for (int h = 0; h < 2; ++h) {
      sum[h] = first ? total[h] : merge[h](sum[h], total[h]);
      max[h] = first ? split_max[h] : merge[h].max;
    }
  }
  /// Row half h belongs to this token and head: divides once, rounds once.
  template <class T>
  __device__ __forceinline__ void store(const AttentionCall& call, int h, std::int64_t token,
                                        int head) const {
    const int quad = static_cast<int>(threadIdx.x) % 4;
    const float scale = inverse(sum[h]);
    T* const out = static_cast<T*>(call.out) + token * call.out_stride + head * D;
    ROSE_UNROLL()
    for (int j = 0; j < D / 8; ++j) {
      const int i = 4 * j + 2 * h;
      *reinterpret_cast<std::uint32_t*>(out + j * 8 + 2 * quad) =
          pack<T>(at[i * Threads] * scale, at[(i + 1) * Threads] * scale);
    }
    if (quad == 0 && call.lse != nullptr) {
      call.lse[token * call.heads + head] = log_sum_exp(max[h], sum[h]);
    }
  }
  /// The same row of a partial result, for the merge.
  __device__ __forceinline__ void store_part(float* part, int h) const {
    const int quad = static_cast<int>(threadIdx.x) % 4;
    ROSE_UNROLL()
    for (int j = 0; j < D / 8; ++j) {
      const int i = 4 * j + 2 * h;
      *reinterpret_cast<float2*>(part + j * 8 + 2 * quad) =
          make_float2(at[i * Threads], at[(i + 1) * Threads]);
    }
    if (quad == 0) *reinterpret_cast<float2*>(part + D) = make_float2(max[h], sum[h]);
  }
};

// Bring rows of a matrix.

/// Rows of D elements, 16 bytes apart from being contiguous: eight of them begin in different banks, as ldmatrix wants.
template <class T, int D>
struct Padded {
  static constexpr int width = D, pitch = D + 8;
  static __device__ __forceinline__ int offset(int row, int d) { return row * pitch + d; }
  /// Elements between a row and the one so many rows behind it.
  template <int Behind>
  static __device__ constexpr int apart() {
    return Behind * pitch;
  }
};

/// Starts copying, with `Threads` threads of which this is number `thread`. row_of(j) says which row of `from` comes j-th; -1: zeros.
template <class Layout, int Rows, int Threads, class T, class RowOf>
__device__ __forceinline__ void copy_rows(T* to, const T* from, std::int64_t stride, int thread,
                                          const RowOf& row_of) {
  constexpr int chunks = Layout::width / 8;
  ROSE_UNROLL(4)
  for (int c = 0; c < Rows * chunks / Threads; ++c) {
    const int at = c * Threads + thread, j = at / chunks, d = at % chunks * 8, row = row_of(j);
    copy_async_16(shared_address(to + Layout::offset(j, d)),
                  from + (row < 0 ? 0 : row) * stride + d, row < 0 ? 0 : 16);
  }
}

/// The same for the first `count` of rows that follow each other; zeros behind them. A thread's rows are a constant step apart, in
/// both memories, so that a copy costs little more than its instruction.
template <class Layout, int Rows, int Threads, class T>
__device__ __forceinline__ void copy_run(T* to, const T* from, std::int64_t stride, int thread,
                                         int count) {
  constexpr int chunks = Layout::width / 8, step = Threads / chunks;
  if constexpr (Threads % chunks == 0) {
    const int j = thread / chunks, d = thread % chunks * 8;
    const std::uint32_t address = shared_address(to + Layout::offset(j, d));
    constexpr unsigned apart = Layout::template apart<step>() * sizeof(T);
    from += j * stride + d;
    ROSE_UNROLL()
    for (int c = 0; c < Rows / step; ++c, from += step * stride) {
      copy_async_16(address + c * apart, from, j + c * step < count ? 16 : 0);
    }
  } else {
    copy_rows<Layout, Rows, Threads>(to, from, stride, thread,
                                     [&](int j) { return j < count ? j : -1; });
  }
}

// Bring rows of bytes.

/// Eight e4m3 numbers times `scale`, each rounded to T.
template <class T>
__device__ __forceinline__ uint4 unpack_bytes(uint2 bytes, float scale) {
  const std::uint32_t words[2] = {bytes.x, bytes.y};
  std::uint32_t out[4];
  ROSE_UNROLL()
  for (int i = 0; i < 4; ++i) {
    const auto two = static_cast<__nv_fp8x2_storage_t>(words[i / 2] >> i % 2 * 16 & 0xffffu);
    const float2 pair = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(two, __NV_E4M3)));
    out[i] = pack<T>(pair.x * scale, pair.y * scale);
  }
  return make_uint4(out[0], out[1], out[2], out[3]);
}

/// copy_rows from e4m3 numbers: there when the threads have met, without waiting for a group.
template <class Layout, int Rows, int Threads, class T, class RowOf>
__device__ __forceinline__ void unpack_rows(T* to, const std::uint8_t* from, std::int64_t stride,
                                            float scale, int thread, const RowOf& row_of) {
  constexpr int chunks = Layout::width / 8, count = Rows * chunks / Threads;
  constexpr int batch = count % 8 == 0 ? 8 : count % 6 == 0 ? 6 : count % 4 == 0 ? 4 : 1;
  for (int first = 0; first < count; first += batch) {
    uint2 bytes[batch];
    ROSE_UNROLL()
    for (int c = 0; c < batch; ++c) {
      const int at = (first + c) * Threads + thread, row = row_of(at / chunks);
      const auto* const source =
          reinterpret_cast<const uint2*>(from + (row < 0 ? 0 : row) * stride + at % chunks * 8);
      bytes[c] = row < 0 ? make_uint2(0, 0) : __ldg(source);
    }
    ROSE_UNROLL()
    for (int c = 0; c < batch; ++c) {
      const int at = (first + c) * Threads + thread;
      *reinterpret_cast<uint4*>(to + Layout::offset(at / chunks, at % chunks * 8)) =
          unpack_bytes<T>(bytes[c], scale);
    }
  }
}

/// The scale of a head.
__device__ __forceinline__ float byte_scale(const float* scales, int kv_head) {
  return scales == nullptr ? 1.0f : __ldg(scales + kv_head);
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

/// A work item of many rows: all keys that they see, or one split of them.
struct RowItem {
  int4 words;
  __device__ __forceinline__ explicit RowItem(const AttentionCall& call)
      : words(__ldg(reinterpret_cast<const int4*>(call.items) + blockIdx.x)) {}
  __device__ __forceinline__ bool empty() const { return words.x < 0; }
  __device__ __forceinline__ int sequence() const { return words.x; }
  __device__ __forceinline__ int first_row() const { return words.y; }
  __device__ __forceinline__ int kv_head() const { return words.z & 0xffff; }
  __device__ __forceinline__ bool part() const { return words.w >= 0; }
  __device__ __forceinline__ int first_key(const AttentionCall& call) const {
    return (words.z >> 16) * call.split;
  }
  /// Of the keys from first_key on, those that somebody who sees `limit` of all does; in a split, no more than it has.
  __device__ __forceinline__ int keys(const AttentionCall& call, int limit) const {
    return part() ? min(call.split, max(0, limit - first_key(call))) : limit;
  }
  /// Where its i-th 16 rows are kept, when its last row sees `limit` keys; and one row of them.
  __device__ __forceinline__ int slot(const AttentionCall& call, int i, int limit) const {
    return words.w + i * ((limit + call.split - 1) / call.split);
  }
  __device__ __forceinline__ float* at(const AttentionCall& call, int row, int limit) const {
    constexpr int rows = 16;
    return call.partials +
           (static_cast<std::int64_t>(slot(call, row / rows, limit)) * rows + row % rows) *
               (call.head_dim + 2);
  }
};

#endif  // __CUDACC__

}  // namespace rose::kernels::gpu
