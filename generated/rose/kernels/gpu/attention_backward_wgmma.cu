// Attention backward on Hopper's warpgroup instructions: the same sums in the same order.

#include "rose/kernels/gpu/attention.cuh"
#include "rose/kernels/gpu/attention_backward.cuh"
#include "rose/kernels/gpu/cuda.cuh"
#include "rose/kernels/gpu/hopper.cuh"
#include "rose/kernels/gpu/warpgroup.cuh"

namespace rose::kernels::gpu {
namespace {

constexpr int kThreads = 128;  // one warpgroup
constexpr int kBlock = 64;     // its rows, and the rows of the tiles that it walks

// Copy 64 rows into the layout of the matrix unit, and round sums to left operands.
template <class T, int D, int Threads = kThreads>
__device__ __forceinline__ void fetch_rows(Swizzled<T, D, kBlock>& to, const T* from,
                                           std::int64_t stride, int first, int end) {
  copy_run<Swizzled<T, D, kBlock>, kBlock, Threads>(to.at, from + first * stride, stride,
                                                    static_cast<int>(threadIdx.x), end - first);
}

template <class T>
__device__ __forceinline__ void round_to_left(std::uint32_t (&a)[4][4], const float (&c)[8][4]) {
  ROSE_UNROLL()
  for (int kk = 0; kk < 4; ++kk) as_left<T>(a[kk], c, kk);
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
  const BackwardItem item(call, call.key_items);
  const int first = item.first, tokens = item.tokens, group = call.heads / call.kv_heads;
  const int thread = static_cast<int>(threadIdx.x), first_row = first + thread / 32 * 16;
  const int own = first_row + thread % 32 / 4;               // keys own and own + 8
  const int tiles = (tokens - first + kBlock - 1) / kBlock;  // of queries, for each head
  // Bring keys and values once, queries and gradients tile by tile, swizzled.
  const auto fetch = [&](int step) {
    if (step < tiles * group) {
      const int head = item.head * group + step / tiles, at = first + step % tiles * kBlock;
      fetch_rows<T, D>(shared.queries[step & 1], item.rows<T, D>(call.q, call.q_stride, head),
                       call.q_stride, at, tokens);
      fetch_rows<T, D>(shared.douts[step & 1], item.rows<T, D>(call.dout, call.dout_stride, head),
                       call.dout_stride, at, tokens);
      if (thread < kBlock) {
        shared.lse[step & 1][thread] = item.lse(call, at + thread, head);
        shared.delta[step & 1][thread] = item.delta(call, at + thread, head);
      }
    }
    copy_async_commit();
  };
  fetch_rows<T, D>(shared.keys, item.rows<T, D>(call.k, call.k_stride, item.head), call.k_stride,
                   first, tokens);
  fetch_rows<T, D>(shared.values, item.rows<T, D>(call.v, call.v_stride, item.head), call.v_stride,
                   first, tokens);
  fetch(0);
  fetch(1);
  float dk[D / 8][4] = {}, dv[D / 8][4] = {};
  for (int step = 0; step < tiles * group; ++step) {
    copy_async_wait<1>();
    order_copies();
    __syncthreads();
    const auto &queries = shared.queries[step & 1], &douts = shared.douts[step & 1];
    const int at = first + step % tiles * kBlock;  // the tile's first query
    // One tile of queries against 64 keys.
    float s[8][4], ds[8][4];
    std::uint32_t weights[4][4], slopes[4][4];
    warpgroup_arrive();
    begin_scores<T, D>(s, shared.keys, queries);
    begin_scores<T, D>(ds, shared.values, douts);
    warpgroup_wait<1>();
    pin(s);
    recover_weights(s, 0, call.factor, PerColumn{shared.lse[step & 1]}, [&](int column, int h) {
      const int key = own + 8 * h;  // seen from the key on, up to the last: one comparison
      return static_cast<unsigned>(at + column - key) >= static_cast<unsigned>(tokens - key);
    });
    round_to_left<T>(weights, s);
    warpgroup_wait<0>();
    pin(ds);
    begin_sums<T, D>(dv, weights, douts);
    to_slopes(ds, s, 0, PerColumn{shared.delta[step & 1]});
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
  store_rows(dk, item.rows<T, D>(call.dk, call.dk_stride, item.head), call.dk_stride, first_row,
             tokens, call.scale);
  store_rows(dv, item.rows<T, D>(call.dv, call.dv_stride, item.head), call.dv_stride, first_row,
             tokens, 1.0f);
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
  const BackwardItem item(call, call.query_items);
  const int first = item.first, tokens = item.tokens, head = item.head;
  const int kv_head = head / (call.heads / call.kv_heads);
  const int first_row = first + static_cast<int>(threadIdx.x) / 32 * 16;
  const int own = first_row + static_cast<int>(threadIdx.x) % 32 / 4;  // queries own and own + 8
  const int tiles = first / kBlock + 1;
  // Bring queries and gradients once, keys and values tile by tile, swizzled.
  const auto fetch = [&](int t) {
    if (t < tiles) {
      fetch_rows<T, D>(shared.keys[t & 1], item.rows<T, D>(call.k, call.k_stride, kv_head),
                       call.k_stride, t * kBlock, tokens);
      fetch_rows<T, D>(shared.values[t & 1], item.rows<T, D>(call.v, call.v_stride, kv_head),
                       call.v_stride, t * kBlock, tokens);
    }
    copy_async_commit();
  };
  fetch_rows<T, D>(shared.queries, item.rows<T, D>(call.q, call.q_stride, head), call.q_stride,
                   first, tokens);
  fetch_rows<T, D>(shared.douts, item.rows<T, D>(call.dout, call.dout_stride, head),
                   call.dout_stride, first, tokens);
  fetch(0);
  fetch(1);
  const PerRow lse{item.lse(call, own, head), item.lse(call, own + 8, head)};
  const PerRow delta{item.delta(call, own, head), item.delta(call, own + 8, head)};
  float dq[D / 8][4] = {};
  for (int t = 0; t < tiles; ++t) {
    copy_async_wait<1>();
    order_copies();
    __syncthreads();
    const auto &keys = shared.keys[t & 1], &values = shared.values[t & 1];
    // One tile of keys against 64 queries.
    float s[8][4], ds[8][4];
    std::uint32_t slopes[4][4];
    warpgroup_arrive();
    begin_scores<T, D>(s, shared.queries, keys);
    begin_scores<T, D>(ds, shared.douts, values);
    warpgroup_wait<1>();
    pin(s);
    recover_weights(s, 0, call.factor, lse,
                    [&](int column, int h) { return t * kBlock + column > own + 8 * h; });
    pin(s);  // here, not after the wait
    warpgroup_wait<0>();
    pin(ds);
    to_slopes(ds, s, 0, delta);
    round_to_left<T>(slopes, ds);
    begin_sums<T, D>(dq, slopes, keys);
    warpgroup_wait<0>();
    pin(dq);
    pin(slopes);
    __syncthreads();
    fetch(t + 2);
  }
  store_rows(dq, item.rows<T, D>(call.dq, call.dq_stride, head), call.dq_stride, first_row, tokens,
             call.scale);
#else
  __trap();
#endif
}

// Keys and values by two warpgroups that walk together.
constexpr int kPair = 2 * kThreads;  // threads of such a block
constexpr int kStages = 4;           // tiles in flight, being read, or still read

template <class T, int D>
struct KeyPairShared {
  Swizzled<T, D, kBlock> keys[2], values[2];  // of the two warpgroups
  Swizzled<T, D, kBlock> queries[kStages], douts[kStages];
  float lse[kStages][kBlock], delta[kStages][kBlock];
};

/// The tiles of queries that a block of keys meets: from `first` on, head by head.
struct Walk {
  int first, end, head, at;
  __device__ __forceinline__ void next() {
    at += kBlock;
    if (at >= end) at = first, ++head;
  }
};

template <class T, int D>
__global__ void __launch_bounds__(kPair, 1) key_pair_gradients(AttentionBackwardCall call) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<KeyPairShared<T, D>*>(memory);
  const BackwardItem item(call, call.key_pairs);
  const int first = item.first, tokens = item.tokens, group = call.heads / call.kv_heads;
  const int thread = static_cast<int>(threadIdx.x);
  // Which of the two warpgroups, known to be the same in all lanes.
  const int side = __shfl_sync(full_warp, thread / kThreads, 0);
  const int first_row = first + thread / 32 * 16, own = first_row + thread % 32 / 4;
  const int steps = (tokens - first + kBlock - 1) / kBlock * group;
  // Bring tiles of queries, and keep one tile's numbers on the way.
  Walk read{first, first + steps / group * kBlock, item.head * group, first};
  Walk copied = read;
  const auto fetch = [&](int step) {
    if (step < steps) {
      const int stage = step % kStages;
      fetch_rows<T, D, kPair>(shared.queries[stage],
                              item.rows<T, D>(call.q, call.q_stride, copied.head), call.q_stride,
                              copied.at, tokens);
      fetch_rows<T, D, kPair>(shared.douts[stage],
                              item.rows<T, D>(call.dout, call.dout_stride, copied.head),
                              call.dout_stride, copied.at, tokens);
    }
    copied.next();
    copy_async_commit();
  };
  const int column = thread % kThreads;  // the first warpgroup has lse, the second delta
  const float* const numbers = side == 0 ? call.lse : call.delta;
  const auto number = [&](int step) {  // of the tile that is copied next
    const int query = copied.at + column, head = copied.head;
    if (step >= steps || column >= kBlock || query >= tokens) return 0.0f;
    return numbers[static_cast<std::int64_t>(item.first_token + query) * call.heads + head];
  };
  const auto keep = [&](int step, float x) {
    if (column >= kBlock) return;
    const int stage = step % kStages;
    side == 0 ? shared.lse[stage][column] = x * log2_e : shared.delta[stage][column] = x;
  };
  for (int part = 0; part < 2; ++part) {
    fetch_rows<T, D, kPair>(shared.keys[part], item.rows<T, D>(call.k, call.k_stride, item.head),
                            call.k_stride, first + part * kBlock, tokens);
    fetch_rows<T, D, kPair>(shared.values[part], item.rows<T, D>(call.v, call.v_stride, item.head),
                            call.v_stride, first + part * kBlock, tokens);
  }
  keep(0, number(0));
  fetch(0);
  keep(1, number(1));
  fetch(1);
  float held = number(2);
  float dk[D / 8][4] = {}, dv[D / 8][4] = {};
  std::uint32_t weights[4][4] = {}, slopes[4][4] = {};
  for (int step = 0; step < steps; ++step, read.next()) {
    // One tile of queries against 64 keys of each warpgroup.
    copy_async_wait<1>();
    order_copies();
    __syncthreads();
    fetch(step + 2);
    keep(step + 2, held);
    held = number(step + 3);
    const int stage = step % kStages, at = read.at;
    const auto &queries = shared.queries[stage], &douts = shared.douts[stage];
    float s[8][4], ds[8][4];
    warpgroup_arrive();
    begin_scores<T, D>(s, shared.keys[side], queries);
    begin_scores<T, D>(ds, shared.values[side], douts);
    warpgroup_wait<1>();  // the sums of the tile before are complete, too
    pin(dv);
    pin(dk);
    pin(weights);
    pin(slopes);
    pin(s);
    recover_weights(s, 0, call.factor, PerColumn{shared.lse[stage]}, [&](int c, int h) {
      const int key = own + 8 * h;
      return static_cast<unsigned>(at + c - key) >= static_cast<unsigned>(tokens - key);
    });
    round_to_left<T>(weights, s);
    warpgroup_wait<0>();
    pin(ds);
    begin_sums<T, D>(dv, weights, douts);
    to_slopes(ds, s, 0, PerColumn{shared.delta[stage]});
    round_to_left<T>(slopes, ds);
    begin_sums<T, D>(dk, slopes, queries);
  }
  warpgroup_wait<0>();
  pin(dv);
  pin(dk);
  store_rows(dk, item.rows<T, D>(call.dk, call.dk_stride, item.head), call.dk_stride, first_row,
             tokens, call.scale);
  store_rows(dv, item.rows<T, D>(call.dv, call.dv_stride, item.head), call.dv_stride, first_row,
             tokens, 1.0f);
#else
  __trap();
#endif
}

// Queries by two warpgroups that walk together.
template <class T, int D>
struct QueryPairShared {
  Swizzled<T, D, kBlock> queries[2], douts[2];
  Swizzled<T, D, kBlock> keys[kStages], values[kStages];
};

template <class T, int D>
__global__ void __launch_bounds__(kPair, 1) query_pair_gradients(AttentionBackwardCall call) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<QueryPairShared<T, D>*>(memory);
  const BackwardItem item(call, call.query_pairs);
  const int first = item.first, tokens = item.tokens, head = item.head;
  const int kv_head = head / (call.heads / call.kv_heads);
  const int thread = static_cast<int>(threadIdx.x);
  // Which of the two warpgroups, known to be the same in all lanes.
  const int side = __shfl_sync(full_warp, thread / kThreads, 0);
  const int first_row = first + thread / 32 * 16, own = first_row + thread % 32 / 4;
  const int tiles = min(first / kBlock + 2, (tokens + kBlock - 1) / kBlock);
  // Bring tiles of keys and values for both warpgroups.
  const auto fetch = [&](int t) {
    if (t < tiles) {
      const int stage = t % kStages;
      fetch_rows<T, D, kPair>(shared.keys[stage], item.rows<T, D>(call.k, call.k_stride, kv_head),
                              call.k_stride, t * kBlock, tokens);
      fetch_rows<T, D, kPair>(shared.values[stage], item.rows<T, D>(call.v, call.v_stride, kv_head),
                              call.v_stride, t * kBlock, tokens);
    }
    copy_async_commit();
  };
  for (int part = 0; part < 2; ++part) {
    fetch_rows<T, D, kPair>(shared.queries[part], item.rows<T, D>(call.q, call.q_stride, head),
                            call.q_stride, first + part * kBlock, tokens);
    fetch_rows<T, D, kPair>(shared.douts[part], item.rows<T, D>(call.dout, call.dout_stride, head),
                            call.dout_stride, first + part * kBlock, tokens);
  }
  fetch(0);
  fetch(1);
  const PerRow lse{item.lse(call, own, head), item.lse(call, own + 8, head)};
  const PerRow delta{item.delta(call, own, head), item.delta(call, own + 8, head)};
  float dq[D / 8][4] = {};
  std::uint32_t slopes[4][4] = {};
  for (int t = 0; t < tiles; ++t) {
    // One tile of keys against 64 queries of each warpgroup.
    copy_async_wait<1>();
    order_copies();
    __syncthreads();
    fetch(t + 2);
    const auto &keys = shared.keys[t % kStages], &values = shared.values[t % kStages];
    float s[8][4], ds[8][4];
    warpgroup_arrive();
    begin_scores<T, D>(s, shared.queries[side], keys);
    begin_scores<T, D>(ds, shared.douts[side], values);
    warpgroup_wait<1>();
    pin(dq);
    pin(slopes);
    pin(s);
    recover_weights(s, 0, call.factor, lse,
                    [&](int column, int h) { return t * kBlock + column > own + 8 * h; });
    pin(s);  // here, not after the wait
    warpgroup_wait<0>();
    pin(ds);
    to_slopes(ds, s, 0, delta);
    round_to_left<T>(slopes, ds);
    begin_sums<T, D>(dq, slopes, keys);
  }
  warpgroup_wait<0>();
  pin(dq);
  store_rows(dq, item.rows<T, D>(call.dq, call.dq_stride, head), call.dq_stride, first_row, tokens,
             call.scale);
#else
  __trap();
#endif
}

// Launch them where they run.
template <class T, int D>
void launch_pairs(const AttentionBackwardCall& call, cudaStream_t stream) {
  constexpr std::size_t key_bytes = sizeof(KeyPairShared<T, D>),
                        query_bytes = sizeof(QueryPairShared<T, D>);
  static_assert(key_bytes <= 227 * 1024 && query_bytes <= 227 * 1024);
  allow_shared_memory(key_pair_gradients<T, D>, key_bytes);
  key_pair_gradients<T, D>
      <<<static_cast<unsigned>(call.key_pair_blocks), kPair, key_bytes, stream>>>(call);
  ROSE_LAUNCH_CHECK("attention_backward");
  allow_shared_memory(query_pair_gradients<T, D>, query_bytes);
  query_pair_gradients<T, D>
      <<<static_cast<unsigned>(call.query_pair_blocks), kPair, query_bytes, stream>>>(call);
  ROSE_LAUNCH_CHECK("attention_backward");
}

template <class T, int D>
void launch(const AttentionBackwardCall& call, cudaStream_t stream) {
  if (call.pairs) return launch_pairs<T, D>(call, stream);
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
  if (!hopper::present()) return false;
  auto* const s = static_cast<cudaStream_t>(stream);
  call.dtype == DType::f16 ? launch<__half>(call, s) : launch<__nv_bfloat16>(call, s);
  return true;
}

}  // namespace rose::kernels::gpu
