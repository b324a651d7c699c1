// Score a row of logits by a cluster of blocks, and replace it by its gradient.

#include <cooperative_groups.h>

#include "rose/kernels/gpu/cross_entropy.h"
#include "rose/kernels/gpu/group.cuh"
#include "rose/kernels/numerics.h"

namespace rose::kernels::gpu {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;
constexpr int kTile = numerics::logsumexp_tile;
constexpr int kLanes = 8;              // of a tile
constexpr int kPerLane = kTile / kLanes;  // columns
constexpr int kTilesAtOnce = kThreads / kLanes;
static_assert(kTile == 128);

// What a launch needs.
struct Scores {
  const float* logits;
  std::int64_t stride;
  int cols, tiles, tiles_of_block;
  const std::int32_t* targets;
  float *logprob, *lse;
  float sign;  // of what goes to logprob: -1 for losses
  void* gradient;
  std::int64_t gradient_stride;
  float scale;
};

/// The columns of lane q of a tile: 32 j + 4 q + i.
__device__ __forceinline__ int column_of(int tile, int q, int j) {
  return tile * kTile + 32 * j + 4 * q;
}

// Score a tile with eight lanes.
struct TileState {
  float highest, sum;
};

__device__ __forceinline__ TileState score_tile(const float (&z)[kPerLane]) {
  float highest = -INFINITY;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) highest = fmaxf(highest, z[i]);
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2)
    highest = fmaxf(highest, __shfl_xor_sync(full_warp, highest, step));
  const float base = highest == -INFINITY ? 0.0f : highest;
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) sum += exp2_approx((z[i] - base) * log2_e);
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(full_warp, sum, step);
  return {highest, sum};
}

// Load a lane's sixteen columns.
template <bool kWide>
__device__ __forceinline__ void load_lane(const float* row, int cols, int tile, int q,
                                          float (&z)[kPerLane]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int col = column_of(tile, q, j);
    if constexpr (kWide) {
      const float4 four = col < cols ? *reinterpret_cast<const float4*>(row + col)
                                     : make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
      z[4 * j] = four.x, z[4 * j + 1] = four.y, z[4 * j + 2] = four.z, z[4 * j + 3] = four.w;
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) z[4 * j + i] = col + i < cols ? row[col + i] : -INFINITY;
    }
  }
}

/// Begins to copy the columns into the piece, or copies them at once where the row is not aligned.
template <bool kWide>
__device__ __forceinline__ void stage_lane(const float* row, int cols, int tile, int first, int q,
                                           float* piece) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int col = column_of(tile, q, j);
    float* to = piece + col - first * kTile;
    if (kWide && col < cols) {
      copy_async_16(shared_address(to), row + col);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i] = col + i < cols ? row[col + i] : -INFINITY;
    }
  }
}

// Know one's place in the cluster.
struct Cluster {
#if __CUDA_ARCH__ >= 900
  cooperative_groups::cluster_group group = cooperative_groups::this_cluster();
  __device__ int size() const { return static_cast<int>(group.num_blocks()); }
  __device__ int rank() const { return static_cast<int>(group.block_rank()); }
  __device__ void sync() { group.sync(); }
  template <class T>
  __device__ const T* shared_of(T* mine, int rank) {
    return group.map_shared_rank(mine, static_cast<unsigned>(rank));
  }
#else
  __device__ int size() const { return 1; }
  __device__ int rank() const { return 0; }
  __device__ void sync() { __syncthreads(); }
  template <class T>
  __device__ const T* shared_of(T* mine, int) {
    return mine;
  }
#endif
};

// Merge the tiles from left to right.

/// On entry all[k] is the state of tile k; returns the row's log-sum-exp to every thread. Uses all[] for factors and addends.
__device__ float merge_tiles(TileState* all, int tiles, float* shared) {
  const int each = (tiles + kThreads - 1) / kThreads;
  const int begin = min(tiles, static_cast<int>(threadIdx.x) * each), end = min(tiles, begin + each);
  float mine = -INFINITY;
  for (int k = begin; k < end; ++k) mine = fmaxf(mine, all[k].highest);
  float before = mine;  // becomes the maximum of all threads up to and with this one, within the warp
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float other = __shfl_up_sync(full_warp, before, step);
    if (threadIdx.x % 32 >= step) before = fmaxf(before, other);
  }
  const int warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 31) shared[warp] = before;
  before = __shfl_up_sync(full_warp, before, 1);
  if (threadIdx.x % 32 == 0) before = -INFINITY;
  __syncthreads();
  float highest = -INFINITY;
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) before = fmaxf(before, shared[w]);
    highest = fmaxf(highest, shared[w]);
  }
  const auto shrink = [](float from, float to) {
    return from == to ? 1.0f : exp2_approx((from - to) * log2_e);
  };
  for (int k = begin; k < end; ++k) {
    const TileState tile = all[k];
    const float common = fmaxf(before, tile.highest);
    all[k] = {shrink(before, common), tile.sum * shrink(tile.highest, common)};
    before = common;
  }
  __syncthreads();
  if (warp == 0) {
    float sum = 0.0f;
#pragma unroll 8
    for (int k = 0; k < tiles; ++k) sum = fmaf(sum, all[k].highest, all[k].sum);
    if (threadIdx.x == 0) shared[kWarps] = highest + logf(sum);
  }
  __syncthreads();
  return shared[kWarps];
}

// Turn four logits into their gradient.
template <class Out>
__device__ __forceinline__ void store_gradient(Out* row, int col, int cols, bool wide, const float (&z)[4],
                                               float lse, int target, float scale) {
  Out out[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float g = scale * exp2_approx((z[i] - lse) * log2_e);
    if (col + i == target) g -= scale;
    out[i] = from_float<Out>(target < 0 ? 0.0f : g);
  }
  if (wide) {
    if constexpr (sizeof(Out) == sizeof(float)) {
      *reinterpret_cast<float4*>(row + col) = make_float4(out[0], out[1], out[2], out[3]);
    } else {
      *reinterpret_cast<uint2*>(row + col) = *reinterpret_cast<const uint2*>(out);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (col + i < cols) row[col + i] = out[i];
    }
  }
}

// Copy, score, merge, and write the gradient.

/// kGradient: write gradients; kStaged: keep the block's piece of the row in shared memory.
template <class Out, bool kGradient, bool kStaged, bool kWide>
__global__ void __launch_bounds__(kThreads) score_kernel(Scores a) {
  extern __shared__ __align__(16) float memory[];
  __shared__ float shared[kWarps + 1];
  Cluster cluster;
  const int blocks = cluster.size();
  const std::int64_t row = blockIdx.x / static_cast<unsigned>(blocks);
  const float* logits = a.logits + row * a.stride;
  const int first = cluster.rank() * a.tiles_of_block, last = min(a.tiles, first + a.tiles_of_block);
  float* piece = memory;
  auto* mine = reinterpret_cast<TileState*>(memory + (kStaged ? a.tiles_of_block * kTile : 0));
  TileState* all = mine + a.tiles_of_block;
  const int target = a.targets != nullptr ? a.targets[row] : 0;
  const bool valid = target >= 0 && target < a.cols;
  const float chosen = valid ? logits[target] : __int_as_float(0x7fffffff);
  const int q = threadIdx.x % kLanes, own = first + static_cast<int>(threadIdx.x) / kLanes;
  // Score the tiles of this block.
  if constexpr (kStaged) {
    constexpr int ahead = 4;
  #pragma unroll
    for (int round = 0; round < ahead; ++round) {
      const int tile = own + round * kTilesAtOnce;
      if (tile < last) stage_lane<kWide>(logits, a.cols, tile, first, q, piece);
      copy_async_commit();
    }
    for (int base = 0; first + base < last; base += kTilesAtOnce) {
      copy_async_wait<ahead - 1>();
      const int tile = own + base;
      float z[kPerLane];
  #pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float4 four = tile < last ? *reinterpret_cast<const float4*>(
                                              piece + column_of(tile - first, q, j))
                                        : make_float4(0, 0, 0, 0);
        z[4 * j] = four.x, z[4 * j + 1] = four.y, z[4 * j + 2] = four.z, z[4 * j + 3] = four.w;
      }
      const TileState state = score_tile(z);
      if (q == 0 && tile < last) mine[tile - first] = state;
      const int next = tile + ahead * kTilesAtOnce;
      if (next < last) stage_lane<kWide>(logits, a.cols, next, first, q, piece);
      copy_async_commit();
    }
  } else {
  #pragma unroll 2
    for (int base = 0; first + base < last; base += kTilesAtOnce) {
      const int tile = own + base;
      float z[kPerLane];
      load_lane<kWide>(logits, tile < last ? a.cols : 0, tile, q, z);
      const TileState state = score_tile(z);
      if (q == 0 && tile < last) mine[tile - first] = state;
    }
  }
  cluster.sync();
  for (int k = threadIdx.x; k < a.tiles; k += kThreads) {
    all[k] = cluster.shared_of(mine, k / a.tiles_of_block)[k % a.tiles_of_block];
  }
  __syncthreads();
  const float lse = merge_tiles(all, a.tiles, shared);
  if (cluster.rank() == 0 && threadIdx.x == 0) {
    if (a.lse != nullptr) a.lse[row] = lse;
    const float result = a.sign * (chosen - lse);
    if (a.logprob != nullptr) a.logprob[row] = kGradient && target < 0 ? 0.0f : result;
  }
  if constexpr (kGradient) {
    // Write the gradient of this block's piece.
    Out* gradient = static_cast<Out*>(a.gradient) + row * a.gradient_stride;
    const int end = min(a.cols, last * kTile);
    #pragma unroll 4
    for (int col = first * kTile + static_cast<int>(threadIdx.x) * 4; col < end; col += kThreads * 4) {
      float z[4];
      if constexpr (kStaged) {
        const float4 four = *reinterpret_cast<const float4*>(piece + col - first * kTile);
        z[0] = four.x, z[1] = four.y, z[2] = four.z, z[3] = four.w;
      } else {
    #pragma unroll
        for (int i = 0; i < 4; ++i) z[i] = col + i < a.cols ? logits[col + i] : 0.0f;
      }
      store_gradient<Out>(gradient, col, a.cols, kWide, z, lse, target, a.scale);
    }
  }
  if (blocks > 1) cluster.sync();
}

// Choose the cluster.
struct ClusterPlan {
  int blocks = 1;
  bool staged = false;
  std::size_t bytes = 0;
};

std::size_t bytes_of(int tiles, int blocks, bool staged) {
  const int own = (tiles + blocks - 1) / blocks;
  return static_cast<std::size_t>(staged ? own * kTile : 0) * sizeof(float) +
         static_cast<std::size_t>(own + tiles) * sizeof(TileState);
}

ClusterPlan plan_clusters(int tiles, bool gradient, std::int64_t rows) {
  int device = 0, major = 0, most = 0;
  ROSE_CUDA_CHECK(cudaGetDevice(&device));
  ROSE_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  ROSE_CUDA_CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  constexpr int hopper = 9, few_rows = 64, widest = 8;
  const int blocks_allowed = major >= hopper ? widest : 1;
  if (!gradient) {
    const int blocks = rows <= few_rows ? blocks_allowed : 1;
    return {blocks, false, bytes_of(tiles, blocks, false)};
  }
  const auto all = static_cast<std::size_t>(most) - 1024;  // a little is reserved for each block
  for (const std::size_t budget : {all / 4, all / 3, all / 2, all}) {
    for (int blocks = 1; blocks <= blocks_allowed; blocks *= 2) {
      if (bytes_of(tiles, blocks, true) <= budget) return {blocks, true, bytes_of(tiles, blocks, true)};
    }
  }
  return {1, false, bytes_of(tiles, 1, false)};
}

}  // namespace

// Launch clusters.
template <class Out, bool kGradient>
void launch_scores(Scores a, std::int64_t rows, bool wide, Stream stream) {
  const ClusterPlan plan = plan_clusters(a.tiles, kGradient, rows);
  a.tiles_of_block = (a.tiles + plan.blocks - 1) / plan.blocks;
  const auto launch = [&](auto kernel) {
    allow_shared_memory(kernel, plan.bytes);
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(rows * plan.blocks));
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = plan.bytes;
    config.stream = to_cuda(stream);
    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {static_cast<unsigned>(plan.blocks), 1, 1};
    config.attrs = &cluster;
    config.numAttrs = plan.blocks > 1 ? 1 : 0;
    ROSE_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, a));
  };
  if constexpr (kGradient) {
    if (plan.staged) {
      wide ? launch(score_kernel<Out, true, true, true>) : launch(score_kernel<Out, true, true, false>);
      return;
    }
  }
  wide ? launch(score_kernel<Out, kGradient, false, true>) : launch(score_kernel<Out, kGradient, false, false>);
}

Scores scores_of(const Matrix& logits, const std::int32_t* targets, float* logprob, float* lse) {
  Scores a{};
  a.logits = static_cast<const float*>(logits.data);
  a.stride = logits.row_stride();
  a.cols = static_cast<int>(logits.cols);
  a.tiles = static_cast<int>(ceil_div(logits.cols, kTile));
  a.targets = targets, a.logprob = logprob, a.lse = lse, a.sign = 1.0f;
  return a;
}

/// Whether every row begins at a multiple of 16 bytes and ends with a whole 16 bytes (8 of bf16).
bool in_fours(const Matrix& m) {
  return is_wide_pointer(m.data) && m.cols % 4 == 0 && (m.rows <= 1 || m.row_stride() % 4 == 0);
}

void launch_token_logprob(const Matrix& logits, const std::int32_t* targets, float* logprob,
                          float* lse, Stream stream) {
  launch_scores<float, false>(scores_of(logits, targets, logprob, lse), logits.rows, in_fours(logits), stream);
}

void launch_cross_entropy(const Matrix& logits, const std::int32_t* targets, float scale,
                          const Matrix& dlogits, float* losses, float* lse, Stream stream) {
  Scores a = scores_of(logits, targets, losses, lse);
  a.sign = -1.0f, a.scale = scale;
  a.gradient = dlogits.data, a.gradient_stride = dlogits.row_stride();
  const bool wide = in_fours(logits) && in_fours(dlogits);
  with_element(dlogits.dtype,
               [&]<class Out>(Out*) { launch_scores<Out, true>(a, logits.rows, wide, stream); });
}

}  // namespace rose::kernels::gpu
