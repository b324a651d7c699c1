// Attention backward in fp32: a block per 32 keys, and one per 32 queries.

#include "rose/kernels/gpu/attention.cuh"
#include "rose/kernels/gpu/attention_backward.cuh"
#include "rose/kernels/gpu/cuda.cuh"
#include "rose/kernels/gpu/fp32_products.cuh"

namespace rose::kernels::gpu {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kBlock = 32, kOwn = kBlock / kWarps;  // rows of a block, and of a warp
constexpr int kItemRows = 64;                       // rows of a work item
constexpr int kPitch = kBlock + 4;                  // of weights

template <int D>
struct Fp32Shared {
  float own[2][kBlock * fp32_pitch<D>];  // keys and values, or queries and the output's gradients
  float others[2][kBlock * fp32_pitch<D>];  // the other two, a tile at a time
  float weights[kBlock * kPitch], slopes[kBlock * kPitch];
};

/// 32 rows of two matrices.
template <int D>
__device__ __forceinline__ void fetch_pair(float (&to)[2][kBlock * fp32_pitch<D>], const float* a,
                                           std::int64_t a_stride, const float* b,
                                           std::int64_t b_stride, int first, int end) {
  const auto row_of = [&](int j) { return first + j < end ? first + j : -1; };
  fetch_fp32<D, kThreads>(to[0], a, a_stride, kBlock, row_of);
  fetch_fp32<D, kThreads>(to[1], b, b_stride, kBlock, row_of);
}

/// Stores a warp's rows, scaled.
template <int D>
__device__ __forceinline__ void store_rows(const float (&sums)[kOwn][D / 32], float* to,
                                           std::int64_t stride, int first, int end, float scale) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  ROSE_UNROLL()
  for (int r = 0; r < kOwn; ++r) {
    if (first + r >= end) continue;
    ROSE_UNROLL()
    for (int i = 0; i < D / 32; ++i) to[(first + r) * stride + lane + 32 * i] = sums[r][i] * scale;
  }
}

// Gradients of keys and values in fp32.
template <int D>
__global__ void __launch_bounds__(kThreads) key_gradients(AttentionBackwardCall call) {
  extern __shared__ __align__(128) unsigned char memory[];
  auto& shared = *reinterpret_cast<Fp32Shared<D>*>(memory);
  const BackwardItem item(call, call.key_items);
  const int first = item.first + static_cast<int>(blockIdx.y) * kBlock, kv_head = item.head;
  if (first >= item.tokens) return;
  const int group = call.heads / call.kv_heads;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int own = warp * kOwn;  // this warp's first key in the block
  fetch_pair<D>(shared.own, item.rows<float, D>(call.k, call.k_stride, kv_head), call.k_stride,
                item.rows<float, D>(call.v, call.v_stride, kv_head), call.v_stride, first,
                item.tokens);
  float dk[kOwn][D / 32] = {}, dv[kOwn][D / 32] = {};
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const float* const q = item.rows<float, D>(call.q, call.q_stride, head);
    const float* const dout = item.rows<float, D>(call.dout, call.dout_stride, head);
    for (int at = first; at < item.tokens; at += kBlock) {
      __syncthreads();
      fetch_pair<D>(shared.others, q, call.q_stride, dout, call.dout_stride, at, item.tokens);
      const int query = at + lane;
      const float lse = query < item.tokens ? item.lse(call, query, head) : 0.0f,
                  delta = query < item.tokens ? item.delta(call, query, head) : 0.0f;
      copy_async_wait<0>();
      __syncthreads();
      float s[kOwn][1], ds[kOwn][1];
      multiply_rows<D>(s, shared.own[0] + own * fp32_pitch<D>, shared.others[0]);
      multiply_rows<D>(ds, shared.own[1] + own * fp32_pitch<D>, shared.others[1]);
      ROSE_UNROLL()
      for (int r = 0; r < kOwn; ++r) {
        const bool seen = query < item.tokens && first + own + r <= query;
        const float p = seen ? exp2_approx(fmaf(s[r][0], call.factor, -lse)) : 0.0f;
        shared.weights[(own + r) * kPitch + lane] = p;
        shared.slopes[(own + r) * kPitch + lane] = p * (ds[r][0] - delta);
      }
      __syncwarp();
      add_rows<D>(dv, shared.weights + own * kPitch, kPitch, shared.others[1], kBlock);
      add_rows<D>(dk, shared.slopes + own * kPitch, kPitch, shared.others[0], kBlock);
    }
  }
  store_rows<D>(dk, item.rows<float, D>(call.dk, call.dk_stride, kv_head), call.dk_stride,
                first + own, item.tokens, call.scale);
  store_rows<D>(dv, item.rows<float, D>(call.dv, call.dv_stride, kv_head), call.dv_stride,
                first + own, item.tokens, 1.0f);
}

// Gradients of queries in fp32.
template <int D>
__global__ void __launch_bounds__(kThreads) query_gradients(AttentionBackwardCall call) {
  extern __shared__ __align__(128) unsigned char memory[];
  auto& shared = *reinterpret_cast<Fp32Shared<D>*>(memory);
  const BackwardItem item(call, call.query_items);
  const int first = item.first + static_cast<int>(blockIdx.y) * kBlock, head = item.head;
  if (first >= item.tokens) return;
  const int kv_head = head / (call.heads / call.kv_heads);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int own = warp * kOwn;  // this warp's first query in the block
  const float* const k = item.rows<float, D>(call.k, call.k_stride, kv_head);
  const float* const v = item.rows<float, D>(call.v, call.v_stride, kv_head);
  fetch_pair<D>(shared.own, item.rows<float, D>(call.q, call.q_stride, head), call.q_stride,
                item.rows<float, D>(call.dout, call.dout_stride, head), call.dout_stride, first,
                item.tokens);
  float lse[kOwn], delta[kOwn], dq[kOwn][D / 32] = {};
  ROSE_UNROLL()
  for (int r = 0; r < kOwn; ++r) {
    const int query = min(first + own + r, item.tokens - 1);
    lse[r] = item.lse(call, query, head);
    delta[r] = item.delta(call, query, head);
  }
  for (int at = 0; at <= first; at += kBlock) {
    __syncthreads();
    fetch_pair<D>(shared.others, k, call.k_stride, v, call.v_stride, at, item.tokens);
    copy_async_wait<0>();
    __syncthreads();
    float s[kOwn][1], ds[kOwn][1];
    multiply_rows<D>(s, shared.own[0] + own * fp32_pitch<D>, shared.others[0]);
    multiply_rows<D>(ds, shared.own[1] + own * fp32_pitch<D>, shared.others[1]);
    ROSE_UNROLL()
    for (int r = 0; r < kOwn; ++r) {
      const bool seen = at + lane <= first + own + r;
      const float p = seen ? exp2_approx(fmaf(s[r][0], call.factor, -lse[r])) : 0.0f;
      shared.slopes[(own + r) * kPitch + lane] = p * (ds[r][0] - delta[r]);
    }
    __syncwarp();
    add_rows<D>(dq, shared.slopes + own * kPitch, kPitch, shared.others[0], kBlock);
  }
  store_rows<D>(dq, item.rows<float, D>(call.dq, call.dq_stride, head), call.dq_stride, first + own,
                item.tokens, call.scale);
}

// Launch both in fp32.
template <int D>
void launch(const AttentionBackwardCall& call, cudaStream_t stream) {
  constexpr int bytes = sizeof(Fp32Shared<D>);
  static_assert(bytes <= 227 * 1024);
  constexpr unsigned parts = kItemRows / kBlock;
  allow_shared_memory(key_gradients<D>, bytes);
  key_gradients<D>
      <<<dim3(static_cast<unsigned>(call.key_blocks), parts), kThreads, bytes, stream>>>(call);
  ROSE_LAUNCH_CHECK("attention_backward");
  allow_shared_memory(query_gradients<D>, bytes);
  query_gradients<D>
      <<<dim3(static_cast<unsigned>(call.query_blocks), parts), kThreads, bytes, stream>>>(call);
  ROSE_LAUNCH_CHECK("attention_backward");
}

}  // namespace

void launch_attention_backward_fp32(const AttentionBackwardCall& call, void* stream) {
  auto* const s = static_cast<cudaStream_t>(stream);
  switch (call.head_dim) {
    case 64: return launch<64>(call, s);
    case 96: return launch<96>(call, s);
    case 128: return launch<128>(call, s);
    default: return launch<256>(call, s);
  }
}

}  // namespace rose::kernels::gpu
