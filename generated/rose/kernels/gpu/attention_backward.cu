// Attention backward: every gradient has one block that adds to it, in ascending order.

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
    const float2 a = unpack<T>(*reinterpret_cast<const std::uint32_t*>(out + d));
    const float2 b = unpack<T>(*reinterpret_cast<const std::uint32_t*>(dout + d));
    sum = fmaf(a.x, b.x, sum);
    sum = fmaf(a.y, b.y, sum);
  }
  sum = warp_sum(sum);
  if (lane == 0) call.delta[row] = sum;
}

// Tiles of 64 rows in shared memory.
template <class T, int D>
struct Tile {
  static constexpr int pitch = D + 8;
  T at[kBlock * pitch];

  /// Rows first .. first + 63 of a matrix; zeros from row `end` on.
  __device__ __forceinline__ void fetch(const T* from, std::int64_t stride, int first, int end) {
    constexpr int chunks = D / 8;
    ROSE_UNROLL()
    for (int c = 0; c < kBlock * chunks / kThreads; ++c) {
      const int index = c * kThreads + static_cast<int>(threadIdx.x);
      const int row = index / chunks, d = index % chunks * 8;
      const bool there = first + row < end;
      copy_async_16(shared_address(at + row * pitch + d),
                    from + (there ? first + row : 0) * stride + d, there ? 16 : 0);
    }
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

/// Sixteen by 8N sums of fp32 as left operands of a further product, rounded: step kk is columns 16 kk on.
template <class T, int N>
__device__ __forceinline__ void as_left(std::uint32_t (&a)[4], const float (&c)[N][4], int kk) {
  a[0] = pack<T>(c[2 * kk][0], c[2 * kk][1]);
  a[1] = pack<T>(c[2 * kk][2], c[2 * kk][3]);
  a[2] = pack<T>(c[2 * kk + 1][0], c[2 * kk + 1][1]);
  a[3] = pack<T>(c[2 * kk + 1][2], c[2 * kk + 1][3]);
}

// Store 16 rows by D of one warp, scaled and rounded.
template <class T, int D>
__device__ __forceinline__ void store_rows(const float (&c)[D / 8][4], T* to, std::int64_t stride,
                                           int first, int end, float scale) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  ROSE_UNROLL()
  for (int h = 0; h < 2; ++h) {
    const int row = first + lane / 4 + 8 * h;
    if (row >= end) continue;
    ROSE_UNROLL()
    for (int j = 0; j < D / 8; ++j) {
      *reinterpret_cast<std::uint32_t*>(to + row * stride + j * 8 + lane % 4 * 2) =
          pack<T>(c[j][2 * h] * scale, c[j][2 * h + 1] * scale);
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

template <class T, int D>
__global__ void __launch_bounds__(kThreads, 2) key_gradients(AttentionBackwardCall call) {
  extern __shared__ __align__(128) unsigned char memory[];
  auto& shared = *reinterpret_cast<KeyShared<T, D>*>(memory);
  const int4 item = __ldg(reinterpret_cast<const int4*>(call.key_items) + blockIdx.x);
  const int first_token = call.row_offsets[item.x];
  const int tokens = call.row_offsets[item.x + 1] - first_token;
  const int first = item.y, kv_head = item.z, group = call.heads / call.kv_heads;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int g = lane / 4, quad = lane % 4;
  const auto matrix = [&](const void* data, std::int64_t stride, int head) {
    return static_cast<const T*>(data) + first_token * stride + head * D;
  };
  const int tiles = (tokens - first + kBlock - 1) / kBlock;  // of queries, for each head
  const auto fetch = [&](int step) {
    if (step < tiles * group) {
      const int head = kv_head * group + step / tiles, at = first + step % tiles * kBlock;
      shared.queries[step & 1].fetch(matrix(call.q, call.q_stride, head), call.q_stride, at,
                                     tokens);
      shared.douts[step & 1].fetch(matrix(call.dout, call.dout_stride, head), call.dout_stride, at,
                                   tokens);
      if (thread < kBlock) {
        const bool there = at + thread < tokens;
        const std::int64_t row =
            static_cast<std::int64_t>(first_token + at + thread) * call.heads + head;
        shared.lse[step & 1][thread] = there ? call.lse[row] * log2_e : 0.0f;
        shared.delta[step & 1][thread] = there ? call.delta[row] : 0.0f;
      }
    }
    copy_async_commit();
  };
  shared.keys.fetch(matrix(call.k, call.k_stride, kv_head), call.k_stride, first, tokens);
  shared.values.fetch(matrix(call.v, call.v_stride, kv_head), call.v_stride, first, tokens);
  fetch(0);
  fetch(1);
  float dk[D / 8][4] = {}, dv[D / 8][4] = {};
  for (int step = 0; step < tiles * group; ++step) {
    copy_async_wait<1>();
    __syncthreads();
    const Tile<T, D>&queries = shared.queries[step & 1], &douts = shared.douts[step & 1];
    const int at = first + step % tiles * kBlock;  // the tile's first query
    const bool diagonal = at == first || at + kBlock > tokens;
    ROSE_UNROLL(1)
    for (int part = 0; part < kBlock; part += kStep) {
      // Scores and their gradients, transposed: 16 keys by 32 queries.
      float s[kStep / 8][4] = {}, ds[kStep / 8][4] = {};
      ROSE_UNROLL()
      for (int kk = 0; kk < D / 16; ++kk) {
        std::uint32_t a[4], b[4];
        shared.keys.left(a, warp * 16, kk);
        ROSE_UNROLL()
        for (int j = 0; j < kStep / 16; ++j) {
          queries.rows(b, part + j * 16, kk);
          mma_16x8x16<T>(s[2 * j], a, b[0], b[1]);
          mma_16x8x16<T>(s[2 * j + 1], a, b[2], b[3]);
        }
        shared.values.left(a, warp * 16, kk);
        ROSE_UNROLL()
        for (int j = 0; j < kStep / 16; ++j) {
          douts.rows(b, part + j * 16, kk);
          mma_16x8x16<T>(ds[2 * j], a, b[0], b[1]);
          mma_16x8x16<T>(ds[2 * j + 1], a, b[2], b[3]);
        }
      }
      // Recover the weights; turn gradients of weights into gradients of scores.
      ROSE_UNROLL()
      for (int j = 0; j < kStep / 8; ++j) {
        const int column = part + j * 8 + 2 * quad;
        const float2 lse = *reinterpret_cast<const float2*>(shared.lse[step & 1] + column);
        const float2 delta = *reinterpret_cast<const float2*>(shared.delta[step & 1] + column);
        ROSE_UNROLL()
        for (int i = 0; i < 4; ++i) {
          const int query = at + column + i % 2, key = first + warp * 16 + g + i / 2 * 8;
          float p = exp2_approx(fmaf(s[j][i], call.factor, -(i % 2 == 0 ? lse.x : lse.y)));
          if (diagonal && (key > query || query >= tokens)) p = 0.0f;
          s[j][i] = p;
          ds[j][i] = p * (ds[j][i] - (i % 2 == 0 ? delta.x : delta.y));
        }
      }
      // Add the part's queries, ascending by 16.
      ROSE_UNROLL()
      for (int kk = 0; kk < kStep / 16; ++kk) {
        std::uint32_t a[4], b[4];
        as_left<T>(a, s, kk);
        ROSE_UNROLL()
        for (int j = 0; j < D / 16; ++j) {
          douts.columns(b, part + kk * 16, j);
          mma_16x8x16<T>(dv[2 * j], a, b[0], b[1]);
          mma_16x8x16<T>(dv[2 * j + 1], a, b[2], b[3]);
        }
        as_left<T>(a, ds, kk);
        ROSE_UNROLL()
        for (int j = 0; j < D / 16; ++j) {
          queries.columns(b, part + kk * 16, j);
          mma_16x8x16<T>(dk[2 * j], a, b[0], b[1]);
          mma_16x8x16<T>(dk[2 * j + 1], a, b[2], b[3]);
        }
      }
    }
    __syncthreads();
    fetch(step + 2);
  }
  T* const to_k = static_cast<T*>(call.dk) + first_token * call.dk_stride + kv_head * D;
  T* const to_v = static_cast<T*>(call.dv) + first_token * call.dv_stride + kv_head * D;
  store_rows<T, D>(dk, to_k, call.dk_stride, first + warp * 16, tokens, call.scale);
  store_rows<T, D>(dv, to_v, call.dv_stride, first + warp * 16, tokens, 1.0f);
}

// Queries: a block per 64 queries walks the keys that they see.
template <class T, int D>
struct QueryShared {
  Tile<T, D> queries, douts;
  Tile<T, D> keys[2], values[2];
};

template <class T, int D>
__global__ void __launch_bounds__(kThreads, 2) query_gradients(AttentionBackwardCall call) {
  extern __shared__ __align__(128) unsigned char memory[];
  auto& shared = *reinterpret_cast<QueryShared<T, D>*>(memory);
  const int4 item = __ldg(reinterpret_cast<const int4*>(call.query_items) + blockIdx.x);
  const int first_token = call.row_offsets[item.x];
  const int tokens = call.row_offsets[item.x + 1] - first_token;
  const int first = item.y, head = item.z, kv_head = head / (call.heads / call.kv_heads);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int g = lane / 4, quad = lane % 4;
  const auto matrix = [&](const void* data, std::int64_t stride, int h) {
    return static_cast<const T*>(data) + first_token * stride + h * D;
  };
  const int tiles = first / kBlock + 1;
  const auto fetch = [&](int t) {
    if (t < tiles) {
      shared.keys[t & 1].fetch(matrix(call.k, call.k_stride, kv_head), call.k_stride, t * kBlock,
                               tokens);
      shared.values[t & 1].fetch(matrix(call.v, call.v_stride, kv_head), call.v_stride, t * kBlock,
                                 tokens);
    }
    copy_async_commit();
  };
  shared.queries.fetch(matrix(call.q, call.q_stride, head), call.q_stride, first, tokens);
  shared.douts.fetch(matrix(call.dout, call.dout_stride, head), call.dout_stride, first, tokens);
  fetch(0);
  fetch(1);
  float lse[2], delta[2];
  ROSE_UNROLL()
  for (int h = 0; h < 2; ++h) {
    const int query = first + warp * 16 + g + 8 * h;
    const std::int64_t row = static_cast<std::int64_t>(first_token + query) * call.heads + head;
    lse[h] = query < tokens ? call.lse[row] * log2_e : 0.0f;
    delta[h] = query < tokens ? call.delta[row] : 0.0f;
  }
  float dq[D / 8][4] = {};
  for (int t = 0; t < tiles; ++t) {
    copy_async_wait<1>();
    __syncthreads();
    const Tile<T, D>&keys = shared.keys[t & 1], &values = shared.values[t & 1];
    ROSE_UNROLL(1)
    for (int part = 0; part < kBlock; part += kStep) {
      float s[kStep / 8][4] = {}, ds[kStep / 8][4] = {};
      ROSE_UNROLL()
      for (int kk = 0; kk < D / 16; ++kk) {
        std::uint32_t a[4], b[4];
        shared.queries.left(a, warp * 16, kk);
        ROSE_UNROLL()
        for (int j = 0; j < kStep / 16; ++j) {
          keys.rows(b, part + j * 16, kk);
          mma_16x8x16<T>(s[2 * j], a, b[0], b[1]);
          mma_16x8x16<T>(s[2 * j + 1], a, b[2], b[3]);
        }
        shared.douts.left(a, warp * 16, kk);
        ROSE_UNROLL()
        for (int j = 0; j < kStep / 16; ++j) {
          values.rows(b, part + j * 16, kk);
          mma_16x8x16<T>(ds[2 * j], a, b[0], b[1]);
          mma_16x8x16<T>(ds[2 * j + 1], a, b[2], b[3]);
        }
      }
      ROSE_UNROLL()
      for (int j = 0; j < kStep / 8; ++j) {
        ROSE_UNROLL()
        for (int i = 0; i < 4; ++i) {
          const int key = t * kBlock + part + j * 8 + 2 * quad + i % 2;
          float p = exp2_approx(fmaf(s[j][i], call.factor, -lse[i / 2]));
          if (t + 1 == tiles && key > first + warp * 16 + g + i / 2 * 8) p = 0.0f;
          ds[j][i] = p * (ds[j][i] - delta[i / 2]);
        }
      }
      ROSE_UNROLL()
      for (int kk = 0; kk < kStep / 16; ++kk) {
        std::uint32_t a[4], b[4];
        as_left<T>(a, ds, kk);
        ROSE_UNROLL()
        for (int j = 0; j < D / 16; ++j) {
          keys.columns(b, part + kk * 16, j);
          mma_16x8x16<T>(dq[2 * j], a, b[0], b[1]);
          mma_16x8x16<T>(dq[2 * j + 1], a, b[2], b[3]);
        }
      }
    }
    __syncthreads();
    fetch(t + 2);
  }
  T* const to = static_cast<T*>(call.dq) + first_token * call.dq_stride + head * D;
  store_rows<T, D>(dq, to, call.dq_stride, first + warp * 16, tokens, call.scale);
}

// Launch three kernels.
template <class T, int D>
void launch(const AttentionBackwardCall& call, cudaStream_t stream) {
  static_assert(sizeof(KeyShared<T, D>) <= 113 * 1024 && sizeof(QueryShared<T, D>) <= 113 * 1024);
  const auto rows = static_cast<unsigned>(ceil_div(call.tokens * call.heads, 8));
  row_deltas<T><<<rows, 256, 0, stream>>>(call);
  ROSE_LAUNCH_CHECK("attention_backward");
  if (launch_attention_backward_warpgroups(call, stream)) return;
  allow_shared_memory(key_gradients<T, D>, sizeof(KeyShared<T, D>));
  key_gradients<T, D>
      <<<static_cast<unsigned>(call.key_blocks), kThreads, sizeof(KeyShared<T, D>), stream>>>(call);
  ROSE_LAUNCH_CHECK("attention_backward");
  allow_shared_memory(query_gradients<T, D>, sizeof(QueryShared<T, D>));
  query_gradients<T, D>
      <<<static_cast<unsigned>(call.query_blocks), kThreads, sizeof(QueryShared<T, D>), stream>>>(
          call);
  ROSE_LAUNCH_CHECK("attention_backward");
}

template <class T>
void launch(const AttentionBackwardCall& call, cudaStream_t stream) {
  switch (call.head_dim) {
    case 64: return launch<T, 64>(call, stream);
    case 96: return launch<T, 96>(call, stream);
    default: return launch<T, 128>(call, stream);
  }
}

}  // namespace

void launch_attention_backward(const AttentionBackwardCall& call, void* stream) {
  auto* const s = static_cast<cudaStream_t>(stream);
  call.half ? launch<__half>(call, s) : launch<__nv_bfloat16>(call, s);
}

}  // namespace rose::kernels::gpu
