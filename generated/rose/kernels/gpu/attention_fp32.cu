// Attention in fp32, sixteen query rows to a block.

#include "rose/kernels/gpu/attention.cuh"
#include "rose/kernels/gpu/attention_splits.cuh"
#include "rose/kernels/gpu/cuda.cuh"
#include "rose/kernels/gpu/fp32_products.cuh"

namespace rose::kernels::gpu {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kRows = split_rows, kOwn = kRows / kWarps;  // rows of a block, and of a warp
constexpr int kItemRows = 128;                            // of an item that walks all keys

template <int D>
struct Fp32Shared {
  static constexpr int tile = numerics::key_tile_of(D), pitch = tile + 4;
  float queries[kRows * fp32_pitch<D>];
  float block[tile * fp32_pitch<D>];  // a tile of keys, then of values
  float scores[kRows * pitch];        // then weights
  int row[tile];
};

// Read either kind of work item.

/// What a block does: some query rows, and the keys from `first_key` to `end`.
struct Walk {
  int sequence = -1, kv_head = 0, first_row = 0, rows = 0, first_token = 0, first_key = 0, end = 0;
  int slot = -1;  // of the partial result; -1: this is all

  /// Of an item that walks all keys.
  static __device__ __forceinline__ Walk whole(const AttentionCall& call) {
    const RowItem item(call);
    Walk walk;
    if (item.empty()) return walk;
    const Span span(call, item.sequence());
    const int group = call.heads / call.kv_heads, part = static_cast<int>(blockIdx.y);
    walk.kv_head = item.kv_head();
    walk.first_row = item.first_row() + part * kRows;
    walk.rows = min(kRows, span.tokens * group - walk.first_row);
    if (walk.rows <= 0) return walk;
    walk.sequence = item.sequence();
    walk.first_token = span.first_token;
    walk.first_key = item.first_key(call);
    walk.end =
        walk.first_key + item.keys(call, span.limit((walk.first_row + walk.rows - 1) / group));
    if (item.part()) {
      const int last = min(item.first_row() + kItemRows, span.tokens * group) - 1;
      walk.slot = item.slot(call, part, span.limit(last / group));
    }
    return walk;
  }
  /// Of an item that has one split.
  static __device__ __forceinline__ Walk split(const AttentionCall& call) {
    const SplitItem item(call, blockIdx.x);
    const int group = call.heads / call.kv_heads;
    Walk walk;
    if (item.empty()) return walk;
    walk.sequence = item.sequence();
    walk.kv_head = item.kv_head();
    walk.first_row = item.first_row();
    walk.rows = item.rows(group);
    walk.first_token = item.first_token();
    walk.first_key = item.first_key();
    walk.end = walk.first_key + item.keys(group);
    walk.slot = item.slot();
    return walk;
  }
};

// Weigh a tile: lanes 4 r to 4 r + 3 have row r.
template <int Tile, int Pitch>
__device__ __forceinline__ float weigh_row(float* scores, int limit, float factor, float& max,
                                           float& sum) {
  const int lane = static_cast<int>(threadIdx.x) % 32, quad = lane % 4;
  float* const row = scores + lane / 4 % kOwn * Pitch + 2 * quad;
  float largest_of = -INFINITY;
  for (int j = 0; j < Tile; j += 8) {
    const float2 s = *reinterpret_cast<const float2*>(row + j);
    if (j + 2 * quad < limit) largest_of = fmaxf(largest_of, s.x);
    if (j + 2 * quad + 1 < limit) largest_of = fmaxf(largest_of, s.y);
  }
  const float before = max;
  max = fmaxf(before, quad_max(largest_of) * factor);
  const float base = anchor(max), by = rescale(before, base);
  float total = 0.0f;
  __syncwarp();
  for (int j = 0; j < Tile && lane < 4 * kOwn; j += 8) {
    float2 s = *reinterpret_cast<const float2*>(row + j);
    s.x = j + 2 * quad < limit ? exp2_approx(fmaf(s.x, factor, -base)) : 0.0f;
    s.y = j + 2 * quad + 1 < limit ? exp2_approx(fmaf(s.y, factor, -base)) : 0.0f;
    total += s.x;
    total += s.y;
    *reinterpret_cast<float2*>(row + j) = s;
  }
  sum = fmaf(sum, by, total);
  __syncwarp();
  return by;
}

// Walk the keys in tiles, and merge split by split.
template <int D>
__global__ void __launch_bounds__(kThreads) attend_fp32(AttentionCall call, bool by_split) {
  using Shared = Fp32Shared<D>;
  constexpr int tile = Shared::tile, columns = D / 32;
  extern __shared__ __align__(128) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const Walk walk = by_split ? Walk::split(call) : Walk::whole(call);
  if (walk.sequence < 0) return;
  const Span span(call, walk.sequence);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int group = call.heads / call.kv_heads, own = warp * kOwn;
  // Bring the queries; rows that do not exist are zeros.
  fetch_fp32<D, kThreads>(shared.queries,
                          static_cast<const float*>(call.q) + walk.first_token * call.q_stride +
                              static_cast<std::int64_t>(walk.kv_head) * group * D,
                          1, kRows, [&](int row) {
                            const int r = walk.first_row + row;
                            return row < walk.rows ? r / group * call.q_stride + r % group * D
                                                   : std::int64_t{-1};
                          });
  const int my_row = own + lane / 4 % kOwn;
  const int limit = my_row < walk.rows ? span.limit((walk.first_row + my_row) / group) : 0;
  float open[kOwn][columns] = {}, closed[kOwn][columns] = {};
  float max = -INFINITY, sum = 0.0f, closed_max = -INFINITY, closed_sum = 0.0f;
  // Close a split: the first one is taken, the others are merged.
  int splits = 0;
  const auto close_split = [&] {
    const float total = quad_sum(sum);
    const Merge merge(closed_max, max);
    ROSE_UNROLL()
    for (int r = 0; r < kOwn; ++r) {
      const float left = __shfl_sync(full_warp, merge.left, 4 * r),
                  right = __shfl_sync(full_warp, merge.right, 4 * r);
      ROSE_UNROLL()
      for (int i = 0; i < columns; ++i) {
        closed[r][i] = splits == 0
                           ? open[r][i]
                           : __fadd_rn(__fmul_rn(closed[r][i], left), __fmul_rn(open[r][i], right));
        open[r][i] = 0.0f;
      }
    }
    closed_sum = splits == 0 ? total : merge(closed_sum, total);
    closed_max = splits == 0 ? max : merge.max;
    max = -INFINITY;
    sum = 0.0f;
    ++splits;
  };
  for (int first = walk.first_key; first < walk.end; first += tile) {
    if (first > walk.first_key && first % call.split == 0) close_split();
    // One tile: scores, weights, values.
    __syncthreads();  // nobody reads the last tile's values any more
    for (int j = static_cast<int>(threadIdx.x); j < tile; j += kThreads) {
      shared.row[j] = first + j < walk.end
                          ? key_row(call, walk.sequence, walk.kv_head, walk.first_token, first + j)
                          : -1;
    }
    __syncthreads();
    const auto row_of = [&](int j) { return shared.row[j]; };
    const std::int64_t head = walk.kv_head * call.head_step;
    fetch_fp32<D, kThreads>(shared.block, static_cast<const float*>(call.k) + head, call.key_stride,
                            tile, row_of);
    copy_async_wait<0>();
    __syncthreads();
    float* const scores = shared.scores + own * Shared::pitch;
    {
      float s[kOwn][tile / 32];
      multiply_rows<D>(s, shared.queries + own * fp32_pitch<D>, shared.block);
      ROSE_UNROLL()
      for (int r = 0; r < kOwn; ++r) {
        ROSE_UNROLL()
        for (int c = 0; c < tile / 32; ++c) scores[r * Shared::pitch + lane + 32 * c] = s[r][c];
      }
    }
    __syncthreads();
    fetch_fp32<D, kThreads>(shared.block, static_cast<const float*>(call.v) + head,
                            call.value_stride, tile, row_of);
    const float by = weigh_row<tile, Shared::pitch>(scores, limit - first, call.factor, max, sum);
    ROSE_UNROLL()
    for (int r = 0; r < kOwn; ++r) {
      const float factor = __shfl_sync(full_warp, by, 4 * r);
      ROSE_UNROLL()
      for (int i = 0; i < columns; ++i) open[r][i] *= factor;
    }
    copy_async_wait<0>();
    __syncthreads();
    add_rows<D>(open, scores, Shared::pitch, shared.block,
                min(tile, (walk.end - first + 3) / 4 * 4));
  }
  close_split();
  // Store the result in fp32, or this split's part of it.
  ROSE_UNROLL()
  for (int r = 0; r < kOwn; ++r) {
    const int row = own + r, at = walk.first_row + row;
    const float row_max = __shfl_sync(full_warp, closed_max, 4 * r),
                row_sum = __shfl_sync(full_warp, closed_sum, 4 * r);
    if (row >= walk.rows) continue;
    const std::int64_t token = walk.first_token + at / group;
    const int query_head = walk.kv_head * group + at % group;
    const bool part = walk.slot >= 0;
    float* const to =
        part ? call.partials + (static_cast<std::int64_t>(walk.slot) * kRows + row) * (D + 2)
             : static_cast<float*>(call.out) + token * call.out_stride + query_head * D;
    const float scale = part ? 1.0f : inverse(row_sum);
    ROSE_UNROLL()
    for (int i = 0; i < columns; ++i) to[lane + 32 * i] = closed[r][i] * scale;
    if (part && lane < 2) to[D + lane] = lane == 0 ? row_max : row_sum;
    if (!part && lane == 0 && call.lse != nullptr) {
      call.lse[token * call.heads + query_head] = log_sum_exp(row_max, row_sum);
    }
  }
}

// Launch it for either kind of item.
template <int D>
void launch(const AttentionCall& call, bool by_split, cudaStream_t stream) {
  constexpr int bytes = sizeof(Fp32Shared<D>);
  static_assert(bytes <= 113 * 1024);
  allow_shared_memory(attend_fp32<D>, bytes);
  const dim3 blocks(static_cast<unsigned>(call.item_count), by_split ? 1 : kItemRows / kRows);
  attend_fp32<D><<<blocks, kThreads, bytes, stream>>>(call, by_split);
  ROSE_LAUNCH_CHECK("attention");
}

}  // namespace

void launch_attention_fp32(const AttentionCall& call, bool by_split, void* stream) {
  auto* const s = static_cast<cudaStream_t>(stream);
  switch (call.head_dim) {
    case 64: return launch<64>(call, by_split, s);
    case 96: return launch<96>(call, by_split, s);
    case 128: return launch<128>(call, by_split, s);
    default: return launch<256>(call, by_split, s);
  }
}

}  // namespace rose::kernels::gpu
