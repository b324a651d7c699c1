// Hold a head in the lanes of a warp.

#include <algorithm>

#include "rose/kernels/gpu/norm_rows.cuh"
#include "rose/kernels/gpu/rope.cuh"
#include "rose/kernels/gpu/turn_heads.h"

namespace rose::kernels::gpu {
namespace {

constexpr int kThreads = 256, kWarp = 32;
constexpr std::int64_t kMostRuns = 528;

struct TurnCall {
  const void* x;
  void* y;  // going back: the gradient
  std::int64_t x_stride, y_stride, tokens;
  int heads, kv_heads, head_dim;
  Parameters q_norm, k_norm;
  float eps;
  const float *cos, *sin;
  float *q_inv, *k_inv;
  float* partial;  // [2, runs, D]
  std::int64_t runs;
};

/// The sum over the `pieces` lanes that hold a head, in every one of them.
__device__ __forceinline__ float head_sum(float value, int pieces) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const unsigned lanes = (pieces == kWarp ? ~0u : (1u << pieces) - 1) << (lane & ~(pieces - 1));
  for (int step = pieces / 2; step > 0; step /= 2) value += __shfl_xor_sync(lanes, value, step);
  return value;
}

// Norm, turn.
template <class T>
__global__ void __launch_bounds__(kThreads) turn_kernel(TurnCall a) {
  const int half = a.head_dim / 2, pieces = half / group_size, all = a.heads + a.kv_heads;
  const std::int64_t unit = blockIdx.x * std::int64_t{kThreads} + threadIdx.x;
  const std::int64_t token = unit / (all * pieces);
  if (token >= a.tokens) return;
  const int rest = static_cast<int>(unit % (all * pieces)), head = rest / pieces;
  const int d = rest % pieces * group_size;
  const bool is_query = head < a.heads;
  const T* from = static_cast<const T*>(a.x) + token * a.x_stride + head * a.head_dim + d;
  Group<T> part[2] = {load_group<true>(from, group_size),
                      load_group<true>(from + half, group_size)};
  float squares[2] = {};
  ROSE_UNROLL()
  for (int h = 0; h < 2; ++h) {
    ROSE_UNROLL()
    for (int e = 0; e < group_size; ++e) {
      const float x = to_float(part[h].at[e]);
      squares[h] = fmaf(x, x, squares[h]);
    }
  }
  const float total = head_sum(squares[0] + squares[1], pieces);
  const float inv = 1.0f / sqrtf(total / static_cast<float>(a.head_dim) + a.eps);
  if (d == 0) {
    float* const to = is_query ? a.q_inv : a.k_inv;
    const std::int64_t at = is_query ? token * a.heads + head : token * a.kv_heads + head - a.heads;
    if (to != nullptr) to[at] = inv;
  }
  const Parameters weights = is_query ? a.q_norm : a.k_norm;
  ROSE_UNROLL()
  for (int h = 0; h < 2; ++h) {
    float weight[group_size];
    weights.load<true>(d + h * half, group_size, weight);
    ROSE_UNROLL()
    for (int e = 0; e < group_size; ++e)
      part[h].at[e] = from_float<T>(round_to<T>(to_float(part[h].at[e]) * inv) * weight[e]);
  }
  const auto c = load_group<true>(a.cos + token * half + d, group_size),
             s = load_group<true>(a.sin + token * half + d, group_size);
  ROSE_UNROLL()
  for (int e = 0; e < group_size; ++e) {
    const float2 turned =
        rope_pair(to_float(part[0].at[e]), to_float(part[1].at[e]), {c.at[e], s.at[e]});
    part[0].at[e] = from_float<T>(turned.x);
    part[1].at[e] = from_float<T>(turned.y);
  }
  T* to = static_cast<T*>(a.y) + token * a.y_stride + head * a.head_dim + d;
  store_group<true>(to, part[0], group_size);
  store_group<true>(to + half, part[1], group_size);
}

// Turn back, go back through the norm, sum up.
template <class T>
__global__ void __launch_bounds__(kThreads) turn_backward_kernel(TurnCall a) {
  extern __shared__ float shared[];  // [teams, D]
  const int half = a.head_dim / 2, pieces = half / group_size, teams = kThreads / pieces;
  const int team = static_cast<int>(threadIdx.x) / pieces;
  const int d = static_cast<int>(threadIdx.x) % pieces * group_size;
  const bool is_query = blockIdx.y == 0;
  const int heads = is_query ? a.heads : a.kv_heads, first_head = is_query ? 0 : a.heads;
  const float* const inverses = is_query ? a.q_inv : a.k_inv;
  const std::int64_t rows = a.tokens * heads, run = (rows + a.runs - 1) / a.runs;
  const std::int64_t last = min(rows, (blockIdx.x + 1) * run);
  float weight[2][group_size], sum[2][group_size] = {};
  ROSE_UNROLL()
  for (int h = 0; h < 2; ++h)
    (is_query ? a.q_norm : a.k_norm).template load<true>(d + h * half, group_size, weight[h]);
  for (std::int64_t row = blockIdx.x * run + team; row < last; row += teams) {
    const std::int64_t token = row / heads, at = (first_head + row % heads) * a.head_dim + d;
    const T* const from = static_cast<const T*>(a.x) + token * a.x_stride + at;
    T* const gradient = static_cast<T*>(a.y) + token * a.y_stride + at;
    const Group<T> x[2] = {load_group<true>(from, group_size),
                           load_group<true>(from + half, group_size)};
    Group<T> dy[2] = {load_group<true>(gradient, group_size),
                      load_group<true>(gradient + half, group_size)};
    const auto c = load_group<true>(a.cos + token * half + d, group_size),
               s = load_group<true>(a.sin + token * half + d, group_size);
    const float inv = inverses[row];
    float g[2][group_size], x_hat[2][group_size], product = 0.0f;
    ROSE_UNROLL()
    for (int e = 0; e < group_size; ++e) {
      const float2 back =
          rope_pair(to_float(dy[0].at[e]), to_float(dy[1].at[e]), {c.at[e], -s.at[e]});
      const float turned[2] = {back.x, back.y};
      ROSE_UNROLL()
      for (int h = 0; h < 2; ++h) {
        x_hat[h][e] = to_float(x[h].at[e]) * inv;
        sum[h][e] = fmaf(turned[h], x_hat[h][e], sum[h][e]);
        g[h][e] = turned[h] * weight[h][e];
        product = fmaf(g[h][e], x_hat[h][e], product);
      }
    }
    const float mean = head_sum(product, pieces) / static_cast<float>(a.head_dim);
    ROSE_UNROLL()
    for (int h = 0; h < 2; ++h) {
      ROSE_UNROLL()
      for (int e = 0; e < group_size; ++e)
        dy[h].at[e] = from_float<T>(inv * fmaf(-x_hat[h][e], mean, g[h][e]));
      store_group<true>(gradient + h * half, dy[h], group_size);
    }
  }
  ROSE_UNROLL()
  for (int h = 0; h < 2; ++h) {
    ROSE_UNROLL()
    for (int e = 0; e < group_size; ++e) shared[team * a.head_dim + h * half + d + e] = sum[h][e];
  }
  __syncthreads();
  for (int col = static_cast<int>(threadIdx.x); col < a.head_dim; col += kThreads) {
    float total = shared[col];
    for (int t = 1; t < teams; ++t) total += shared[t * a.head_dim + col];
    a.partial[(blockIdx.y * a.runs + blockIdx.x) * a.head_dim + col] = total;
  }
}

// Add the runs in their order.
__global__ void __launch_bounds__(kThreads)
    turn_fold_kernel(const float* partial, std::int64_t runs, int head_dim, float* dq, float* dk) {
  constexpr int chains = kThreads / kWarp;
  __shared__ float of[chains][kWarp];
  const int chain = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  const int col = static_cast<int>(blockIdx.x) * kWarp + lane;
  partial += blockIdx.y * runs * head_dim;
  float sum = 0.0f;
  ROSE_UNROLL(8)
  for (std::int64_t run = chain; run < runs; run += chains) sum += partial[run * head_dim + col];
  of[chain][lane] = sum;
  __syncthreads();
  if (chain != 0) return;
  ROSE_UNROLL()
  for (int i = 1; i < chains; ++i) sum += of[i][lane];
  (blockIdx.y == 0 ? dq : dk)[col] += sum;
}

}  // namespace

// Launch.
namespace {

TurnCall call_of(const HeadTurn& t, const Matrix& x, const Matrix& y) {
  TurnCall a{};
  a.x = x.data, a.y = y.data, a.x_stride = x.row_stride(), a.y_stride = y.row_stride();
  a.tokens = x.rows;
  a.heads = static_cast<int>(t.heads), a.kv_heads = static_cast<int>(t.kv_heads);
  a.head_dim = static_cast<int>(t.head_dim);
  a.q_norm = parameters(t.q_norm), a.k_norm = parameters(t.k_norm);
  a.eps = t.eps, a.cos = t.cos, a.sin = t.sin;
  return a;
}

}  // namespace

void launch_turn_heads(const HeadTurn& t, const Matrix& x, const Matrix& y, float* q_inv,
                       float* k_inv, Stream stream) {
  TurnCall a = call_of(t, x, y);
  a.q_inv = q_inv, a.k_inv = k_inv;
  const std::int64_t units = a.tokens * (t.heads + t.kv_heads) * t.head_dim / (2 * group_size);
  with_activation(x.dtype, [&]<class T>(T*) {
    turn_kernel<T>
        <<<static_cast<unsigned>(ceil_div(units, kThreads)), kThreads, 0, to_cuda(stream)>>>(a);
  });
  ROSE_LAUNCH_CHECK("turn_heads");
}

void launch_turn_heads_backward(const HeadTurn& t, const Matrix& x, const float* q_inv,
                                const float* k_inv, const Matrix& gradient, float* dq_norm,
                                float* dk_norm, Workspace workspace, Stream stream) {
  TurnCall a = call_of(t, x, gradient);
  a.q_inv = const_cast<float*>(q_inv), a.k_inv = const_cast<float*>(k_inv);  // only read
  a.partial = static_cast<float*>(workspace.data);
  const int teams = kThreads / (a.head_dim / 2 / group_size);
  a.runs = std::min(kMostRuns, ceil_div(a.tokens * std::max(t.heads, t.kv_heads), teams));
  const std::size_t bytes = static_cast<std::size_t>(teams * a.head_dim) * sizeof(float);
  with_activation(x.dtype, [&]<class T>(T*) {
    turn_backward_kernel<T>
        <<<dim3(static_cast<unsigned>(a.runs), 2), kThreads, bytes, to_cuda(stream)>>>(a);
  });
  turn_fold_kernel<<<dim3(static_cast<unsigned>(a.head_dim / kWarp), 2), kThreads, 0,
                     to_cuda(stream)>>>(a.partial, a.runs, a.head_dim, dq_norm, dk_norm);
  ROSE_LAUNCH_CHECK("turn_heads_backward");
}

}  // namespace rose::kernels::gpu
