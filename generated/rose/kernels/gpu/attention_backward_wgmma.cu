// Attention backward on Hopper's warpgroup instructions: the same sums in the same order.

#include "rose/kernels/gpu/attention.cuh"
#include "rose/kernels/gpu/attention_backward.cuh"
#include "rose/kernels/gpu/cuda.cuh"
#include "rose/kernels/gpu/warpgroup.cuh"

namespace rose::kernels::gpu {
namespace {

constexpr int kThreads = 128;  // one warpgroup
constexpr int kBlock = 64;     // its rows, and the rows of the tiles that it walks

// Copy 64 rows into the layout of the matrix unit.
template <class T, int D>
__device__ __forceinline__ void fetch_rows(Swizzled<T, D, kBlock>& to, const T* from,
                                           std::int64_t stride, int first, int end) {
  constexpr int chunks = D / 8;
  ROSE_UNROLL()
  for (int c = 0; c < kBlock * chunks / kThreads; ++c) {
    const int index = c * kThreads + static_cast<int>(threadIdx.x);
    const int row = index / chunks, d = index % chunks * 8;
    const bool there = first + row < end;
    copy_async_16(shared_address(to.at + Swizzled<T, D, kBlock>::offset(row, d)),
                  from + (there ? first + row : 0) * stride + d, there ? 16 : 0);
  }
}

/// 64 x 64 sums of fp32, rounded, as left operands of a further product.
template <class T>
__device__ __forceinline__ void round_to_left(std::uint32_t (&a)[4][4], const float (&c)[8][4]) {
  ROSE_UNROLL()
  for (int kk = 0; kk < 4; ++kk) {
    a[kk][0] = pack<T>(c[2 * kk][0], c[2 * kk][1]);
    a[kk][1] = pack<T>(c[2 * kk][2], c[2 * kk][3]);
    a[kk][2] = pack<T>(c[2 * kk + 1][0], c[2 * kk + 1][1]);
    a[kk][3] = pack<T>(c[2 * kk + 1][2], c[2 * kk + 1][3]);
  }
  pin(a);
}

// Multiply 64 rows by 64 rows over the head dimension, and 64 weights by 64 rows.
template <class T, int D>
__device__ __forceinline__ void begin_scores(float (&s)[8][4], const Swizzled<T, D, kBlock>& a,
                                             const Swizzled<T, D, kBlock>& b) {
  ROSE_UNROLL()
  for (int kk = 0; kk < D / 16; ++kk) {
    Warpgroup<T>::multiply(s, a.by_columns(0, kk), b.by_columns(0, kk), kk > 0);
  }
  warpgroup_commit();
}
template <class T, int D>
__device__ __forceinline__ void begin_sums(float (&d)[D / 8][4], const std::uint32_t (&a)[4][4],
                                           const Swizzled<T, D, kBlock>& b) {
  pin(d);
  warpgroup_arrive();
  ROSE_UNROLL()
  for (int kk = 0; kk < kBlock / 16; ++kk) {
    Warpgroup<T>::multiply_add(d, a[kk], b.by_rows(kk));
  }
  warpgroup_commit();
}

// Store one warpgroup's 64 rows, scaled and rounded.
template <class T, int D>
__device__ __forceinline__ void store_rows(const float (&c)[D / 8][4], T* to, std::int64_t stride,
                                           int first, int end, float scale) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  ROSE_UNROLL()
  for (int h = 0; h < 2; ++h) {
    const int row = first + warp * 16 + lane / 4 + 8 * h;
    if (row >= end) continue;
    ROSE_UNROLL()
    for (int j = 0; j < D / 8; ++j) {
      *reinterpret_cast<std::uint32_t*>(to + row * stride + j * 8 + lane % 4 * 2) =
          pack<T>(c[j][2 * h] * scale, c[j][2 * h + 1] * scale);
    }
  }
}

// Keys and values by warpgroup.
template <class T, int D>
struct KeyShared {
  Swizzled<T, D, kBlock> keys, values;
  Swizzled<T, D, kBlock> queries[2], douts[2];
  float lse[2][kBlock], delta[2][kBlock];
};

template <class T, int D>
__global__ void __launch_bounds__(kThreads, 2) key_gradients(AttentionBackwardCall call) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<KeyShared<T, D>*>(memory);
  const int4 item = __ldg(reinterpret_cast<const int4*>(call.key_items) + blockIdx.x);
  const int first_token = call.row_offsets[item.x];
  const int tokens = call.row_offsets[item.x + 1] - first_token;
  const int first = item.y, kv_head = item.z, group = call.heads / call.kv_heads;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int own = first + thread / 32 * 16 + lane / 4, quad = lane % 4;  // keys own and own + 8
  const auto matrix = [&](const void* data, std::int64_t stride, int head) {
    return static_cast<const T*>(data) + first_token * stride + head * D;
  };
  const int tiles = (tokens - first + kBlock - 1) / kBlock;  // of queries, for each head
  const auto fetch = [&](int step) {
    if (step < tiles * group) {
      const int head = kv_head * group + step / tiles, at = first + step % tiles * kBlock;
      fetch_rows<T, D>(shared.queries[step & 1], matrix(call.q, call.q_stride, head), call.q_stride,
                       at, tokens);
      fetch_rows<T, D>(shared.douts[step & 1], matrix(call.dout, call.dout_stride, head),
                       call.dout_stride, at, tokens);
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
  fetch_rows<T, D>(shared.keys, matrix(call.k, call.k_stride, kv_head), call.k_stride, first,
                   tokens);
  fetch_rows<T, D>(shared.values, matrix(call.v, call.v_stride, kv_head), call.v_stride, first,
                   tokens);
  fetch(0);
  fetch(1);
  float dk[D / 8][4] = {}, dv[D / 8][4] = {};
  for (int step = 0; step < tiles * group; ++step) {
    copy_async_wait<1>();
    order_copies();
    __syncthreads();
    const auto &queries = shared.queries[step & 1], &douts = shared.douts[step & 1];
    const int at = first + step % tiles * kBlock;  // the tile's first query
    const bool masked = at == first || at + kBlock > tokens;
    // One tile of queries against 64 keys.
    float s[8][4], ds[8][4];
    std::uint32_t weights[4][4], slopes[4][4];
    warpgroup_arrive();
    begin_scores<T, D>(s, shared.keys, queries);
    begin_scores<T, D>(ds, shared.values, douts);
    warpgroup_wait<1>();
    pin(s);
    ROSE_UNROLL()
    for (int j = 0; j < 8; ++j) {
      const int column = j * 8 + 2 * quad;
      const float2 lse = *reinterpret_cast<const float2*>(shared.lse[step & 1] + column);
      ROSE_UNROLL()
      for (int i = 0; i < 4; ++i) {
        const int query = at + column + i % 2, key = own + i / 2 * 8;
        float p = exp2_approx(fmaf(s[j][i], call.factor, -(i % 2 == 0 ? lse.x : lse.y)));
        if (masked && (key > query || query >= tokens)) p = 0.0f;
        s[j][i] = p;
      }
    }
    round_to_left<T>(weights, s);
    warpgroup_wait<0>();
    pin(ds);
    begin_sums<T, D>(dv, weights, douts);
    ROSE_UNROLL()
    for (int j = 0; j < 8; ++j) {
      const int column = j * 8 + 2 * quad;
      const float2 delta = *reinterpret_cast<const float2*>(shared.delta[step & 1] + column);
      ROSE_UNROLL()
      for (int i = 0; i < 4; ++i) {
        ds[j][i] = s[j][i] * (ds[j][i] - (i % 2 == 0 ? delta.x : delta.y));
      }
    }
    round_to_left<T>(slopes, ds);
    begin_sums<T, D>(dk, slopes, queries);
    warpgroup_wait<0>();
    pin(dv);
    pin(dk);
    pin(weights);
    pin(slopes);
    __syncthreads();
    fetch(step + 2);
  }
  T* const to_k = static_cast<T*>(call.dk) + first_token * call.dk_stride + kv_head * D;
  T* const to_v = static_cast<T*>(call.dv) + first_token * call.dv_stride + kv_head * D;
  store_rows<T, D>(dk, to_k, call.dk_stride, first, tokens, call.scale);
  store_rows<T, D>(dv, to_v, call.dv_stride, first, tokens, 1.0f);
#else
  __trap();
#endif
}

// Queries by warpgroup.
template <class T, int D>
struct QueryShared {
  Swizzled<T, D, kBlock> queries, douts;
  Swizzled<T, D, kBlock> keys[2], values[2];
};

template <class T, int D>
__global__ void __launch_bounds__(kThreads, 2) query_gradients(AttentionBackwardCall call) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<QueryShared<T, D>*>(memory);
  const int4 item = __ldg(reinterpret_cast<const int4*>(call.query_items) + blockIdx.x);
  const int first_token = call.row_offsets[item.x];
  const int tokens = call.row_offsets[item.x + 1] - first_token;
  const int first = item.y, head = item.z, kv_head = head / (call.heads / call.kv_heads);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, quad = lane % 4;
  const int own = first + thread / 32 * 16 + lane / 4;  // queries own and own + 8
  const auto matrix = [&](const void* data, std::int64_t stride, int h) {
    return static_cast<const T*>(data) + first_token * stride + h * D;
  };
  const int tiles = first / kBlock + 1;
  const auto fetch = [&](int t) {
    if (t < tiles) {
      fetch_rows<T, D>(shared.keys[t & 1], matrix(call.k, call.k_stride, kv_head), call.k_stride,
                       t * kBlock, tokens);
      fetch_rows<T, D>(shared.values[t & 1], matrix(call.v, call.v_stride, kv_head), call.v_stride,
                       t * kBlock, tokens);
    }
    copy_async_commit();
  };
  fetch_rows<T, D>(shared.queries, matrix(call.q, call.q_stride, head), call.q_stride, first,
                   tokens);
  fetch_rows<T, D>(shared.douts, matrix(call.dout, call.dout_stride, head), call.dout_stride, first,
                   tokens);
  fetch(0);
  fetch(1);
  float lse[2], delta[2];
  ROSE_UNROLL()
  for (int h = 0; h < 2; ++h) {
    const int query = own + 8 * h;
    const std::int64_t row = static_cast<std::int64_t>(first_token + query) * call.heads + head;
    lse[h] = query < tokens ? call.lse[row] * log2_e : 0.0f;
    delta[h] = query < tokens ? call.delta[row] : 0.0f;
  }
  float dq[D / 8][4] = {};
  for (int t = 0; t < tiles; ++t) {
    copy_async_wait<1>();
    order_copies();
    __syncthreads();
    const auto &keys = shared.keys[t & 1], &values = shared.values[t & 1];
    float s[8][4], ds[8][4];
    std::uint32_t slopes[4][4];
    warpgroup_arrive();
    begin_scores<T, D>(s, shared.queries, keys);
    begin_scores<T, D>(ds, shared.douts, values);
    warpgroup_wait<1>();
    pin(s);
    ROSE_UNROLL()
    for (int j = 0; j < 8; ++j) {
      ROSE_UNROLL()
      for (int i = 0; i < 4; ++i) {
        float p = exp2_approx(fmaf(s[j][i], call.factor, -lse[i / 2]));
        const int key = t * kBlock + j * 8 + 2 * quad + i % 2;
        if (t + 1 == tiles && key > own + i / 2 * 8) p = 0.0f;
        s[j][i] = p;
      }
    }
    pin(s);  // here, not after the wait
    warpgroup_wait<0>();
    pin(ds);
    ROSE_UNROLL()
    for (int j = 0; j < 8; ++j) {
      ROSE_UNROLL()
      for (int i = 0; i < 4; ++i) ds[j][i] = s[j][i] * (ds[j][i] - delta[i / 2]);
    }
    round_to_left<T>(slopes, ds);
    begin_sums<T, D>(dq, slopes, keys);
    warpgroup_wait<0>();
    pin(dq);
    pin(slopes);
    __syncthreads();
    fetch(t + 2);
  }
  T* const to = static_cast<T*>(call.dq) + first_token * call.dq_stride + head * D;
  store_rows<T, D>(dq, to, call.dq_stride, first, tokens, call.scale);
#else
  __trap();
#endif
}

// Launch them where they run.
template <class T, int D>
void launch(const AttentionBackwardCall& call, cudaStream_t stream) {
  static_assert(sizeof(KeyShared<T, D>) <= 113 * 1024 && sizeof(QueryShared<T, D>) <= 113 * 1024);
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
  call.head_dim == 64 ? launch<T, 64>(call, stream) : launch<T, 128>(call, stream);
}

}  // namespace

bool launch_attention_backward_warpgroups(const AttentionBackwardCall& call, void* stream) {
  if (!call.warpgroup || (call.head_dim != 64 && call.head_dim != 128)) return false;
  int device = 0, major = 0;
  ROSE_CUDA_CHECK(cudaGetDevice(&device));
  ROSE_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  constexpr int hopper = 9;
  if (major != hopper) return false;
  auto* const s = static_cast<cudaStream_t>(stream);
  call.half ? launch<__half>(call, s) : launch<__nv_bfloat16>(call, s);
  return true;
}

}  // namespace rose::kernels::gpu
