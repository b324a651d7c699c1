// Attention, 128 query rows to a block, on Hopper's warpgroup instructions.

#include "rose/kernels/gpu/attention.cuh"
#include "rose/kernels/gpu/cuda.cuh"
#include "rose/kernels/gpu/hopper.cuh"
#include "rose/kernels/gpu/warpgroup.cuh"

namespace rose::kernels::gpu {
namespace {

constexpr int kGroups = 2, kGroupThreads = 128;  // warpgroups that compute; one more fetches
constexpr int kConsumers = kGroups * kGroupThreads, kThreads = kConsumers + kGroupThreads;
constexpr int kRows = 64 * kGroups;
constexpr int kTile = numerics::key_tile;
constexpr int kStages = 2;
constexpr int kBoxRows = 16;  // that one copy brings
constexpr int kTurn =
    4;  // names of barriers: 4 for the first computing warpgroup, 5 for the second

// What the block shares.
template <class T, int D>
struct WarpgroupShared {
  Swizzled<T, D, kRows> queries;
  Swizzled<T, D, kTile> keys[kStages], values[kStages];
  float closed[D / 2 * kConsumers];  // the merged splits' O, element i of a thread at [i][thread]
  int row[kTile];                    // which key rows a tile is made of
  std::uint64_t full_keys[kStages], full_values[kStages];    // a tile has arrived
  std::uint64_t empty_keys[kStages], empty_values[kStages];  // nobody reads it any more
};

// Whole tiles, fetched by one warp as boxes.
template <class T, int D>
__device__ __forceinline__ void fetch_boxes(const AttentionCall& call, const CUtensorMap& k_map,
                                            const CUtensorMap& v_map, WarpgroupShared<T, D>& shared,
                                            const RowItem& item, int first_token, int tiles) {
  constexpr int boxes = kTile / kBoxRows, slabs = D / 64;
  static_assert(boxes * slabs <= 32);
  const int lane = static_cast<int>(threadIdx.x) % 32, box = lane % boxes, slab = lane / boxes;
  const int column = item.kv_head() * static_cast<int>(call.head_step) + slab * 64;
  const int first = item.first_key(call) + box * kBoxRows;
  const auto row_of = [&](int t) {
    const int row = key_row(call, item.sequence(), item.kv_head(), first_token, t * kTile + first);
    return row < 0 ? static_cast<int>(call.key_rows) : row;  // no such page: zeros from outside
  };
  const auto bring = [&](const CUtensorMap& map, T* to, std::uint64_t& full, int row) {
    if (lane == 0) {
      hopper::barrier_arrive_expecting(shared_address(&full),
                                       static_cast<int>(sizeof(T)) * kTile * D);
    }
    __syncwarp();
    if (slab < slabs) {
      hopper::copy_box(shared_address(to + (slab * kTile + box * kBoxRows) * 64), &map, column, row,
                       shared_address(&full));
    }
  };
  int row = tiles > 0 ? row_of(0) : 0;
  for (int t = 0; t < tiles; ++t) {
    const int stage = t % kStages, lap = t / kStages;
    const int next_row = t + 1 < tiles ? row_of(t + 1) : 0;
    if (lap > 0) barrier_wait(shared.empty_keys[stage], (lap - 1) & 1);
    bring(k_map, shared.keys[stage].at, shared.full_keys[stage], row);
    if (lap > 0) barrier_wait(shared.empty_values[stage], (lap - 1) & 1);
    bring(v_map, shared.values[stage].at, shared.full_values[stage], row);
    row = next_row;
  }
}

// Other tiles, fetched by the warpgroup row by row.
template <class T, int D>
__device__ __forceinline__ void fetch_all(const AttentionCall& call, const CUtensorMap& k_map,
                                          const CUtensorMap& v_map, WarpgroupShared<T, D>& shared,
                                          const RowItem& item, int first_token, int keys) {
  using Tile = Swizzled<T, D, kTile>;
  const int thread = static_cast<int>(threadIdx.x) - kConsumers;
  const T* const k = static_cast<const T*>(call.k) + item.kv_head() * call.head_step;
  const T* const v = static_cast<const T*>(call.v) + item.kv_head() * call.head_step;
  const int tiles = (keys + kTile - 1) / kTile, whole = call.boxes ? keys / kTile : 0;
  if (thread < 32) {
    fetch_boxes<T, D>(call, k_map, v_map, shared, item, first_token, whole);
  }
  for (int t = whole; t < tiles; ++t) {
    const int stage = t % kStages, lap = t / kStages, position = t * kTile + thread;
    shared.row[thread] = position < keys ? key_row(call, item.sequence(), item.kv_head(),
                                                   first_token, item.first_key(call) + position)
                                         : -1;
    if (lap > 0 && thread < 32) {
      barrier_wait(shared.empty_keys[stage], (lap - 1) & 1);
      barrier_wait(shared.empty_values[stage], (lap - 1) & 1);
    }
    gather_threads(1, kGroupThreads);
    const auto row_of = [&](int j) { return shared.row[j]; };
    copy_rows<Tile, kTile, kGroupThreads>(shared.keys[stage].at, k, call.key_stride, thread,
                                          row_of);
    copy_rows<Tile, kTile, kGroupThreads>(shared.values[stage].at, v, call.value_stride, thread,
                                          row_of);
    copy_async_commit();
    copy_async_wait<0>();
    order_copies();
    gather_threads(1, kGroupThreads);
    if (thread == 0) {
      barrier_arrive(shared.full_keys[stage]);
      barrier_arrive(shared.full_values[stage]);
    }
  }
}

// Bring the queries of one warpgroup.
template <class T, int D>
__device__ __forceinline__ void fetch_queries(const AttentionCall& call,
                                              WarpgroupShared<T, D>& shared, const Span& span,
                                              int first_row, int row_count, int kv_head) {
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads,
            base = static_cast<int>(threadIdx.x) / kGroupThreads * 64;
  const int group = call.heads / call.kv_heads;
  constexpr int chunks = D / 8;
  for (int c = thread; c < 64 * chunks; c += kGroupThreads) {
    const int row = base + c / chunks, d = c % chunks * 8, r = first_row + row;
    const bool there = row < row_count;
    const std::int64_t token = span.first_token + (there ? r / group : 0);
    const T* const from = static_cast<const T*>(call.q) + token * call.q_stride +
                          (kv_head * group + (there ? r % group : 0)) * D + d;
    copy_async_16(shared_address(shared.queries.at + Swizzled<T, D, kRows>::offset(row, d)), from,
                  there ? 16 : 0);
  }
  copy_async_commit();
  copy_async_wait<0>();
  order_copies();
  gather_threads(2 + static_cast<int>(threadIdx.x) / kGroupThreads, kGroupThreads);
}

// A warpgroup that computes: scores of the next tile while this one's values are multiplied.
template <class T, int D, bool Turns>
__device__ __forceinline__ void compute(const AttentionCall& call, WarpgroupShared<T, D>& shared,
                                        const Span& span, const RowItem& item, int row_count,
                                        int limit_of_all) {
  using Group = Warpgroup<T>;
  const int thread = static_cast<int>(threadIdx.x);
  // The same in all lanes, and known to be: descriptors stay in the registers that a warp shares.
  const int warpgroup = __shfl_sync(full_warp, thread / kGroupThreads, 0);
  const int lane = thread % 32, g = lane / 4, group = call.heads / call.kv_heads;
  const int first = warpgroup * 64 + thread % kGroupThreads / 32 * 16 + g;  // and first + 8
  const int first_row = item.first_row(), kv_head = item.kv_head();
  const int first_key = item.first_key(call), keys = item.keys(call, limit_of_all);
  fetch_queries<T, D>(call, shared, span, first_row, row_count, kv_head);
  int limit[2];
  ROSE_UNROLL()
  for (int h = 0; h < 2; ++h) {
    const int row = first + 8 * h;
    limit[h] = row < row_count ? span.limit((first_row + row) / group) - first_key : 0;
  }
  // Every row of this warpgroup sees all keys before this one.
  const int last_row = warpgroup * 64 + 63;
  const int seen_by_all =
      last_row < row_count ? span.limit((first_row + warpgroup * 64) / group) - first_key : 0;
  const int tiles = (keys + kTile - 1) / kTile, tiles_per_split = call.split / kTile;

  float s[kTile / 8][4], open[D / 8][4] = {};
  std::uint32_t p[kTile / 16][4];
  float max[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  ClosedSplits<D, kConsumers> closed{shared.closed + thread};

  // Begin a product.
  const auto begin_scores = [&](int t) {
    barrier_wait(shared.full_keys[t % kStages], t / kStages & 1);
    warpgroup_arrive();
    ROSE_UNROLL()
    for (int kk = 0; kk < D / 16; ++kk) {
      Group::multiply(s, shared.queries.by_columns(warpgroup * 64, kk),
                      shared.keys[t % kStages].by_columns(0, kk), kk > 0);
    }
    warpgroup_commit();
  };
  const auto begin_values = [&](int t) {
    barrier_wait(shared.full_values[t % kStages], t / kStages & 1);
    pin(open);
    pin(p);
    warpgroup_arrive();
    ROSE_UNROLL()
    for (int kk = 0; kk < kTile / 16; ++kk) {
      Group::multiply_add(open, p[kk], shared.values[t % kStages].by_rows(kk));
    }
    warpgroup_commit();
  };
  const auto release = [&](std::uint64_t& barrier) {
    if (lane == 0) barrier_arrive(barrier);
  };
  // Mask, weigh, round.
  const auto weigh_tile = [&](int t, float(&by)[2]) {
    if ((t + 1) * kTile > seen_by_all) mask(s, t * kTile, limit);
    weigh(s, call.factor, max, sum, by);
    pin(s);  // here, not after the wait for the values
  };
  const auto round_weights = [&] {
    ROSE_UNROLL()
    for (int kk = 0; kk < kTile / 16; ++kk) as_left<T>(p[kk], s, kk);
    pin(p);
  };
  // Walk the tiles, one product ahead.
  if (tiles > 0) {
    float by[2];
    begin_scores(0);
    warpgroup_wait<0>();
    pin(s);
    release(shared.empty_keys[0]);
    weigh_tile(0, by);
    round_weights();
    if (Turns && warpgroup == 1) announce_threads(kTurn, kConsumers);  // the other one begins
    for (int t = 1; t < tiles; ++t) {
      if constexpr (Turns) gather_threads(kTurn + warpgroup, kConsumers);
      begin_scores(t);
      begin_values(t - 1);
      if constexpr (Turns) announce_threads(kTurn + 1 - warpgroup, kConsumers);
      warpgroup_wait<1>();
      pin(s);
      release(shared.empty_keys[t % kStages]);
      const bool boundary = t % tiles_per_split == 0;
      const float split_max[2] = {max[0], max[1]}, split_sum[2] = {sum[0], sum[1]};
      if (boundary) {
        ROSE_UNROLL()
        for (int h = 0; h < 2; ++h) max[h] = -INFINITY, sum[h] = 0.0f;
      }
      weigh_tile(t, by);
      const auto finish_values = [&] {
        pin(open);
        pin(p);
        release(shared.empty_values[(t - 1) % kStages]);
      };
      if (boundary) {
        warpgroup_wait<0, 1>();
        finish_values();
        closed.fold(t == tiles_per_split, open, split_max, split_sum);
        ROSE_UNROLL()
        for (int i = 0; i < D / 2; ++i) open[i / 4][i % 4] = 0.0f;
      } else {
        warpgroup_wait<0, 2>();
        finish_values();
        ROSE_UNROLL()
        for (int i = 0; i < D / 2; ++i) open[i / 4][i % 4] *= by[i % 4 / 2];
      }
      round_weights();
    }
    begin_values(tiles - 1);
    warpgroup_wait<0>();
    pin(open);
  }
  closed.fold(tiles <= tiles_per_split, open, max, sum);
  ROSE_UNROLL()
  for (int h = 0; h < 2; ++h) {
    const int row = first + 8 * h, r = first_row + row;
    if (row >= row_count) continue;
    if (item.part()) {
      closed.store_part(item.at(call, row, limit_of_all), h);
    } else {
      closed.template store<T>(call, h, span.first_token + r / group, kv_head * group + r % group);
    }
  }
}

// Hand out roles and registers.
template <class T, int D, bool Turns>
__global__ void __launch_bounds__(kThreads, 1)
    attend_warpgroups(AttentionCall call, const __grid_constant__ CUtensorMap k_map,
                      const __grid_constant__ CUtensorMap v_map) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<WarpgroupShared<T, D>*>(memory);
  const RowItem item(call);
  if (item.empty()) return;
  const Span span(call, item.sequence());
  const int group = call.heads / call.kv_heads;
  const int row_count = min(kRows, span.tokens * group - item.first_row());
  const int limit = span.limit((item.first_row() + row_count - 1) / group);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_begin(shared.full_keys[i], 1);
      barrier_begin(shared.full_values[i], 1);
      barrier_begin(shared.empty_keys[i], kConsumers / 32);
      barrier_begin(shared.empty_values[i], kConsumers / 32);
    }
    hopper::barrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x >= kConsumers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    fetch_all<T, D>(call, k_map, v_map, shared, item, span.first_token, item.keys(call, limit));
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    compute<T, D, Turns>(call, shared, span, item, row_count, limit);
  }
#else
  __trap();  // compiled for a machine without these instructions: launch_attention_rows does not come here
#endif
}

// Launch either version.

/// Keys or values as a matrix of boxes; rows of one page lie together, and so do packed ones.
CUtensorMap describe(const AttentionCall& call, const void* data, std::int64_t stride) {
  constexpr std::int64_t columns = 64, bytes = 2;
  const bool paged = call.page_table != nullptr;
  const cuuint64_t sizes[2] = {
      static_cast<cuuint64_t>(call.head_dim) * static_cast<cuuint64_t>(paged ? 1 : call.kv_heads),
      static_cast<cuuint64_t>(call.key_rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(stride * bytes)};
  const cuuint32_t box[2] = {columns, kBoxRows};
  return hopper::tensor_map(
      call.dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      data, sizes, strides, box);
}

template <class T, int D, bool Turns>
void launch(AttentionCall call, cudaStream_t stream) {
  constexpr int bytes = sizeof(WarpgroupShared<T, D>);
  static_assert(bytes <= 227 * 1024);
  allow_shared_memory(attend_warpgroups<T, D, Turns>, bytes);
  CUtensorMap maps[2] = {};
  call.boxes = call.page_table == nullptr || call.page_size % kBoxRows == 0;
  if (call.boxes) {
    maps[0] = describe(call, call.k, call.key_stride);
    maps[1] = describe(call, call.v, call.value_stride);
  }
  attend_warpgroups<T, D, Turns>
      <<<static_cast<unsigned>(call.item_count), kThreads, bytes, stream>>>(call, maps[0], maps[1]);
  ROSE_LAUNCH_CHECK("attention");
}

template <class T, int D>
void launch(const AttentionCall& call, cudaStream_t stream) {
  call.turns ? launch<T, D, true>(call, stream) : launch<T, D, false>(call, stream);
}

template <class T>
void launch(const AttentionCall& call, cudaStream_t stream) {
  call.head_dim == 64 ? launch<T, 64>(call, stream) : launch<T, 128>(call, stream);
}

}  // namespace

// Say whether this device has them.
bool launch_attention_warpgroups(const AttentionCall& call, void* stream) {
  if (!call.warpgroup || (call.head_dim != 64 && call.head_dim != 128)) return false;
  if (!hopper::present()) return false;
  auto* const s = static_cast<cudaStream_t>(stream);
  call.dtype == DType::f16 ? launch<__half>(call, s) : launch<__nv_bfloat16>(call, s);
  return true;
}

}  // namespace rose::kernels::gpu
