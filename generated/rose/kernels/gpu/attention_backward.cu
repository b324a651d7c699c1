// Attention backward: every gradient has one block that adds to it, in ascending order.

#include <type_traits>

#include "rose/kernels/gpu/attention.cuh"
#include "rose/kernels/gpu/attention_backward.cuh"
#include "rose/kernels/gpu/cuda.cuh"

namespace rose::kernels::gpu {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kBlock = 16 * kWarps;  // rows of a block, and of the tiles that it walks
constexpr int kStep = 32;            // how many of a tile's rows a warp takes at a time

// What the output says about its own gradient.

/// delta[t, h] = dout . out: a warp per token and head. Lane j adds pairs 2j, 2j + 64, ...; lanes are folded by halves.
template <class T>
__global__ void __launch_bounds__(256) row_deltas(AttentionBackwardCall call) {
  const std::int64_t row = blockIdx.x * std::int64_t{8} + threadIdx.x / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (row >= call.tokens * call.heads) return;
  const std::int64_t token = row / call.heads, at = row % call.heads * call.head_dim;
  const T* const out = static_cast<const T*>(call.out) + token * call.out_stride + at;
  const T* const dout = static_cast<const T*>(call.dout) + token * call.dout_stride + at;
  float sum = 0.0f;
  for (int d = 2 * lane; d < call.head_dim; d += 64) {
    sum = fmaf(to_float(out[d]), to_float(dout[d]), sum);
    sum = fmaf(to_float(out[d + 1]), to_float(dout[d + 1]), sum);
  }
  sum = warp_sum(sum);
  if (lane == 0) call.delta[row] = sum;
}

// Tiles of 64 rows in shared memory.
template <class T, int D>
struct Tile {
  using Element = T;
  static constexpr int pitch = Padded<T, D>::pitch;
  T at[kBlock * pitch];

  /// Rows first .. first + 63 of a matrix; zeros from row `end` on.
  __device__ __forceinline__ void fetch(const T* from, std::int64_t stride, int first, int end) {
    copy_run<Padded<T, D>, kBlock, kThreads>(at, from + first * stride, stride,
                                             static_cast<int>(threadIdx.x), end - first);
  }
  /// The left operand: 16 rows from `row`, columns 16 kk on.
  __device__ __forceinline__ void left(std::uint32_t (&a)[4], int row, int kk) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    ldmatrix_x4(a, shared_address(at + (row + (lane & 15)) * pitch + kk * 16 + (lane >> 4) * 8));
  }
  /// Two right operands whose columns are 16 rows from `row`, and whose depth is columns 16 kk on.
  __device__ __forceinline__ void rows(std::uint32_t (&b)[4], int row, int kk) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    ldmatrix_x4(b, shared_address(at + (row + (lane & 7) + (lane >> 4) * 8) * pitch + kk * 16 +
                                  (lane >> 3 & 1) * 8));
  }
  /// Two right operands whose depth is 16 rows from `row`, and whose columns are columns 16 j on.
  __device__ __forceinline__ void columns(std::uint32_t (&b)[4], int row, int j) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    ldmatrix_x4_transposed(b, shared_address(at + (row + (lane & 7) + (lane >> 3 & 1) * 8) * pitch +
                                             j * 16 + (lane >> 4) * 8));
  }
};

// Multiply parts of tiles.

/// s += rows of a by rows of b, over the head dimension.
template <int D, class Tile, int N>
__device__ __forceinline__ void multiply_tiles(float (&s)[N][4], const Tile& a, int row,
                                               const Tile& b, int part) {
  ROSE_UNROLL()
  for (int kk = 0; kk < D / 16; ++kk) {
    std::uint32_t left[4], right[4];
    a.left(left, row, kk);
    ROSE_UNROLL()
    for (int j = 0; j < N / 2; ++j) {
      b.rows(right, part + j * 16, kk);
      mma_16x8x16<typename Tile::Element>(s[2 * j], left, right[0], right[1]);
      mma_16x8x16<typename Tile::Element>(s[2 * j + 1], left, right[2], right[3]);
    }
  }
}

/// sums += weights by rows of b, from row `part` and column `first` on; rows ascending by 16.
template <class T, int N, int Columns, class Tile>
__device__ __forceinline__ void add_tile(float (&sums)[Columns][4], const float (&weights)[N][4],
                                         const Tile& b, int part, int first) {
  ROSE_UNROLL()
  for (int kk = 0; kk < N / 2; ++kk) {
    std::uint32_t left[4], right[4];
    as_left<T>(left, weights, kk);
    ROSE_UNROLL()
    for (int j = 0; j < Columns / 2; ++j) {
      b.columns(right, part + kk * 16, first / 16 + j);
      mma_16x8x16<T>(sums[2 * j], left, right[0], right[1]);
      mma_16x8x16<T>(sums[2 * j + 1], left, right[2], right[3]);
    }
  }
}

// Keys and values: a block per 64 keys walks the queries that see them.
template <class T, int D>
struct KeyShared {
  Tile<T, D> keys, values;
  Tile<T, D> queries[2], douts[2];
  float lse[2][kBlock], delta[2][kBlock];
};

/// Columns of a gradient that a block computes: more do not fit the registers. Wider heads take a block for each part.
template <int D>
inline constexpr int columns_of = D <= 128 ? D : 128;

template <class T, int D>
__global__ void __launch_bounds__(kThreads, D <= 128 ? 2 : 1)
    key_gradients(AttentionBackwardCall call) {
  extern __shared__ __align__(128) unsigned char memory[];
  auto& shared = *reinterpret_cast<KeyShared<T, D>*>(memory);
  const BackwardItem item(call, call.key_items);
  const int first = item.first, tokens = item.tokens, group = call.heads / call.kv_heads;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  const int own = first + warp * 16 + thread % 32 / 4;  // keys own and own + 8
  constexpr int columns = columns_of<D>;
  const int first_column = static_cast<int>(blockIdx.y) * columns;
  const int tiles = (tokens - first + kBlock - 1) / kBlock;  // of queries, for each head
  // Bring keys and values once, queries and gradients tile by tile.
  const auto fetch = [&](int step) {
    if (step < tiles * group) {
      const int head = item.head * group + step / tiles, at = first + step % tiles * kBlock;
      shared.queries[step & 1].fetch(item.rows<T, D>(call.q, call.q_stride, head), call.q_stride,
                                     at, tokens);
      shared.douts[step & 1].fetch(item.rows<T, D>(call.dout, call.dout_stride, head),
                                   call.dout_stride, at, tokens);
      if (thread < kBlock) {
        shared.lse[step & 1][thread] = item.lse(call, at + thread, head);
        shared.delta[step & 1][thread] = item.delta(call, at + thread, head);
      }
    }
    copy_async_commit();
  };
  shared.keys.fetch(item.rows<T, D>(call.k, call.k_stride, item.head), call.k_stride, first,
                    tokens);
  shared.values.fetch(item.rows<T, D>(call.v, call.v_stride, item.head), call.v_stride, first,
                      tokens);
  fetch(0);
  fetch(1);
  float dk[columns / 8][4] = {}, dv[columns / 8][4] = {};
  for (int step = 0; step < tiles * group; ++step) {
    copy_async_wait<1>();
    __syncthreads();
    const Tile<T, D>&queries = shared.queries[step & 1], &douts = shared.douts[step & 1];
    const int at = first + step % tiles * kBlock;  // the tile's first query
    ROSE_UNROLL(1)
    for (int part = 0; part < kBlock; part += kStep) {
      // Scores and their gradients, transposed: 16 keys by 32 queries.
      float s[kStep / 8][4] = {}, ds[kStep / 8][4] = {};
      multiply_tiles<D>(s, shared.keys, warp * 16, queries, part);
      multiply_tiles<D>(ds, shared.values, warp * 16, douts, part);
      // Recover the weights; gradients of weights become gradients of scores.
      recover_weights(
          s, part, call.factor, PerColumn{shared.lse[step & 1]}, [&](int column, int h) {
            const int key = own + 8 * h;  // seen from the key on, up to the last: one comparison
            return static_cast<unsigned>(at + column - key) >= static_cast<unsigned>(tokens - key);
          });
      to_slopes(ds, s, part, PerColumn{shared.delta[step & 1]});
      // Add the part's queries, ascending by 16.
      add_tile<T>(dv, s, douts, part, first_column);
      add_tile<T>(dk, ds, queries, part, first_column);
    }
    __syncthreads();
    fetch(step + 2);
  }
  store_rows(dk, item.rows<T, D>(call.dk, call.dk_stride, item.head) + first_column, call.dk_stride,
             first + warp * 16, tokens, call.scale);
  store_rows(dv, item.rows<T, D>(call.dv, call.dv_stride, item.head) + first_column, call.dv_stride,
             first + warp * 16, tokens, 1.0f);
}

// Queries: a block per 64 queries walks the keys that they see.
template <class T, int D>
struct QueryShared {
  Tile<T, D> queries, douts;
  Tile<T, D> keys[2], values[2];
};

template <class T, int D>
__global__ void __launch_bounds__(kThreads, D <= 128 ? 2 : 1)
    query_gradients(AttentionBackwardCall call) {
  extern __shared__ __align__(128) unsigned char memory[];
  auto& shared = *reinterpret_cast<QueryShared<T, D>*>(memory);
  const BackwardItem item(call, call.query_items);
  const int first = item.first, tokens = item.tokens, head = item.head;
  const int kv_head = head / (call.heads / call.kv_heads);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  const int own = first + warp * 16 + thread % 32 / 4;  // queries own and own + 8
  constexpr int columns = columns_of<D>;
  const int first_column = static_cast<int>(blockIdx.y) * columns;
  const int tiles = first / kBlock + 1;
  // Bring queries and gradients once, keys and values tile by tile.
  const auto fetch = [&](int t) {
    if (t < tiles) {
      shared.keys[t & 1].fetch(item.rows<T, D>(call.k, call.k_stride, kv_head), call.k_stride,
                               t * kBlock, tokens);
      shared.values[t & 1].fetch(item.rows<T, D>(call.v, call.v_stride, kv_head), call.v_stride,
                                 t * kBlock, tokens);
    }
    copy_async_commit();
  };
  shared.queries.fetch(item.rows<T, D>(call.q, call.q_stride, head), call.q_stride, first, tokens);
  shared.douts.fetch(item.rows<T, D>(call.dout, call.dout_stride, head), call.dout_stride, first,
                     tokens);
  fetch(0);
  fetch(1);
  const PerRow lse{item.lse(call, own, head), item.lse(call, own + 8, head)};
  const PerRow delta{item.delta(call, own, head), item.delta(call, own + 8, head)};
  float dq[columns / 8][4] = {};
  for (int t = 0; t < tiles; ++t) {
    copy_async_wait<1>();
    __syncthreads();
    const Tile<T, D>&keys = shared.keys[t & 1], &values = shared.values[t & 1];
    ROSE_UNROLL(1)
    for (int part = 0; part < kBlock; part += kStep) {
      float s[kStep / 8][4] = {}, ds[kStep / 8][4] = {};
      multiply_tiles<D>(s, shared.queries, warp * 16, keys, part);
      multiply_tiles<D>(ds, shared.douts, warp * 16, values, part);
      recover_weights(s, part, call.factor, lse,
                      [&](int column, int h) { return t * kBlock + column > own + 8 * h; });
      to_slopes(ds, s, part, delta);
      add_tile<T>(dq, ds, keys, part, first_column);
    }
    __syncthreads();
    fetch(t + 2);
  }
  store_rows(dq, item.rows<T, D>(call.dq, call.dq_stride, head) + first_column, call.dq_stride,
             first + warp * 16, tokens, call.scale);
}

// Launch three kernels.
template <class T, int D>
void launch(const AttentionBackwardCall& call, cudaStream_t stream) {
  constexpr int room = (D <= 128 ? 113 : 227) * 1024;
  static_assert(sizeof(KeyShared<T, D>) <= room && sizeof(QueryShared<T, D>) <= room);
  constexpr unsigned parts = D / columns_of<D>;
  allow_shared_memory(key_gradients<T, D>, sizeof(KeyShared<T, D>));
  key_gradients<T, D><<<dim3(static_cast<unsigned>(call.key_blocks), parts), kThreads,
                        sizeof(KeyShared<T, D>), stream>>>(call);
  ROSE_LAUNCH_CHECK("attention_backward");
  allow_shared_memory(query_gradients<T, D>, sizeof(QueryShared<T, D>));
  query_gradients<T, D><<<dim3(static_cast<unsigned>(call.query_blocks), parts), kThreads,
                          sizeof(QueryShared<T, D>), stream>>>(call);
  ROSE_LAUNCH_CHECK("attention_backward");
}

template <class T>
void launch(const AttentionBackwardCall& call, cudaStream_t stream) {
  const auto rows = static_cast<unsigned>(ceil_div(call.tokens * call.heads, 8));
  row_deltas<T><<<rows, 256, 0, stream>>>(call);
  ROSE_LAUNCH_CHECK("attention_backward");
  if constexpr (std::is_same_v<T, float>) {
    launch_attention_backward_fp32(call, stream);
  } else {
    if (launch_attention_backward_warpgroups(call, stream)) return;
    switch (call.head_dim) {
      case 64: return launch<T, 64>(call, stream);
      case 96: return launch<T, 96>(call, stream);
      case 128: return launch<T, 128>(call, stream);
      default: return launch<T, 256>(call, stream);
    }
  }
}

}  // namespace

void launch_attention_backward(const AttentionBackwardCall& call, void* stream) {
  auto* const s = static_cast<cudaStream_t>(stream);
  switch (call.dtype) {
    case DType::f16: return launch<__half>(call, s);
    case DType::f32: return launch<float>(call, s);
    default: return launch<__nv_bfloat16>(call, s);
  }
}

}  // namespace rose::kernels::gpu
