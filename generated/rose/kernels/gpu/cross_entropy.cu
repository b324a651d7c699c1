// Score a row of logits by a cluster of blocks, and replace it by its gradient.

#include <cooperative_groups.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "rose/kernels/gpu/cross_entropy.h"
#include "rose/kernels/gpu/group.cuh"
#include "rose/kernels/numerics.h"

namespace rose::kernels::gpu {

namespace {

constexpr int kThreads = 512;
constexpr int kTile = numerics::logsumexp_tile;
constexpr int kLanes = 8;                 // of a tile
constexpr int kPerLane = kTile / kLanes;  // columns
constexpr int kRunTiles = numerics::logsumexp_run / kTile;
constexpr int kWarps = kThreads / 32, kWarpTiles = 32 / kLanes, kHalves = kRunTiles / kWarpTiles;
constexpr int kRounds = 4;  // of all warps: more than shared memory can hold
static_assert(kTile == 128 && kHalves == 2);

// What a launch needs.
struct Scores {
  const float* logits;
  std::int64_t rows, stride;
  int cols, tiles, runs, runs_of_block;
  int staged;             // runs of a block that its shared memory keeps; it reads the others again
  int ahead, ahead_runs;  // the row that is read here next, and how many of its runs to bring near
  const std::int32_t* targets;
  float *logprob, *lse;
  float sign;  // of what goes to logprob: -1 for losses
  void* gradient;
  std::int64_t gradient_stride;
  float scale;
  LossTerms terms;
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
  ROSE_UNROLL()
  for (int i = 0; i < kPerLane; ++i) highest = fmaxf(highest, z[i]);
  ROSE_UNROLL()
  for (int step = kLanes / 2; step > 0; step /= 2)
    highest = fmaxf(highest, __shfl_xor_sync(full_warp, highest, step));
  const float base = highest == -INFINITY ? 0.0f : highest;
  float sum = 0.0f;
  ROSE_UNROLL()
  for (int i = 0; i < kPerLane; ++i) sum += exp2_approx((z[i] - base) * log2_e);
  ROSE_UNROLL()
  for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(full_warp, sum, step);
  return {highest, sum};
}

// Load a lane's sixteen columns.
template <bool kWide>
__device__ __forceinline__ void load_lane(const float* row, int cols, int tile, int q,
                                          float (&z)[kPerLane]) {
  ROSE_UNROLL()
  for (int j = 0; j < 4; ++j) {
    const int col = column_of(tile, q, j);
    if constexpr (kWide) {
      const float4 four = col < cols ? *reinterpret_cast<const float4*>(row + col)
                                     : make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
      z[4 * j] = four.x, z[4 * j + 1] = four.y, z[4 * j + 2] = four.z, z[4 * j + 3] = four.w;
    } else {
      ROSE_UNROLL()
      for (int i = 0; i < 4; ++i) z[4 * j + i] = col + i < cols ? row[col + i] : -INFINITY;
    }
  }
}

/// Begins to copy the columns into the piece, or copies them at once where the row is not aligned.
template <bool kWide>
__device__ __forceinline__ void stage_lane(const float* row, int cols, int tile, int first, int q,
                                           float* piece) {
  ROSE_UNROLL()
  for (int j = 0; j < 4; ++j) {
    const int col = column_of(tile, q, j);
    float* to = piece + col - first * kTile;
    if (kWide && col < cols) {
      copy_async_16(shared_address(to), row + col);
    } else {
      ROSE_UNROLL()
      for (int i = 0; i < 4; ++i) to[i] = col + i < cols ? row[col + i] : -INFINITY;
    }
  }
}

/// Waits for the copies of the first round + 1 rounds.
__device__ __forceinline__ void wait_for_round(int round) {
  if (round == 0) return copy_async_wait<kRounds - 1>();
  if (round == 1) return copy_async_wait<kRounds - 2>();
  copy_async_wait<0>();
}

// Know one's place in the cluster.
struct Cluster {
#if __CUDA_ARCH__ >= 900
  cooperative_groups::cluster_group group = cooperative_groups::this_cluster();
  __device__ int size() const { return static_cast<int>(group.num_blocks()); }
  __device__ int rank() const { return static_cast<int>(group.block_rank()); }
  __device__ void sync() { group.sync(); }
  __device__ void arrive() { group.barrier_arrive(); }  // says: I read nobody's memory any more
  __device__ void wait() { group.barrier_wait(); }
  template <class T>
  __device__ const T* shared_of(T* mine, int rank) {
    return group.map_shared_rank(mine, static_cast<unsigned>(rank));
  }
#else
  __device__ int size() const { return 1; }
  __device__ int rank() const { return 0; }
  __device__ void sync() { __syncthreads(); }
  __device__ void arrive() {}
  __device__ void wait() {}
  template <class T>
  __device__ const T* shared_of(T* mine, int) {
    return mine;
  }
#endif
};

// Merge pieces from left to right.
__device__ __forceinline__ float shrink(float from, float to) {
  return from == to ? 1.0f : exp2_approx((from - to) * log2_e);
}

/// The tiles of a run, one after the other; tile k of each half is held by lanes 8 k to 8 k + 7. Exponentials do not wait for
/// the sum, so they overlap. A tile beyond the row holds nothing but -inf and changes nothing.
__device__ __forceinline__ TileState merge_run(const TileState (&halves)[kHalves]) {
  TileState all{-INFINITY, 0.0f};
  ROSE_UNROLL()
  for (int k = 0; k < kRunTiles; ++k) {
    const TileState& half = halves[k / kWarpTiles];
    const int lane = k % kWarpTiles * kLanes;
    const TileState tile{__shfl_sync(full_warp, half.highest, lane),
                         __shfl_sync(full_warp, half.sum, lane)};
    const float common = fmaxf(all.highest, tile.highest);
    const float addend = tile.sum * shrink(tile.highest, common);
    all = {common, fmaf(all.sum, shrink(all.highest, common), addend)};
  }
  return all;
}

/// all[k] is the state of run k, and becomes its factor and addend. Called by one warp; returns the row's log-sum-exp.
__device__ float merge_runs(TileState* all, int runs) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float highest = -INFINITY;  // of all runs before
  for (int base = 0; base < runs; base += 32) {
    const int k = base + lane;
    const TileState mine = k < runs ? all[k] : TileState{-INFINITY, 0.0f};
    float upto = fmaxf(highest, mine.highest);
    ROSE_UNROLL()
    for (int step = 1; step < 32; step *= 2) {
      const float other = __shfl_up_sync(full_warp, upto, step);
      if (lane >= step) upto = fmaxf(upto, other);
    }
    float before = __shfl_up_sync(full_warp, upto, 1);
    if (lane == 0) before = highest;
    if (k < runs) all[k] = {shrink(before, upto), mine.sum * shrink(mine.highest, upto)};
    highest = __shfl_sync(full_warp, upto, 31);
  }
  __syncwarp();
  float sum = 0.0f;
  ROSE_UNROLL(16)
  for (int k = 0; k < runs; ++k) sum = fmaf(sum, all[k].highest, all[k].sum);
  return highest + logf(sum);
}

// Turn four logits into their gradient.
template <class Out>
__device__ __forceinline__ void store_gradient(Out* row, int col, int cols, bool wide,
                                               const float (&z)[4], float lse, int target,
                                               float slope, float scale) {
  Out out[4];
  ROSE_UNROLL()
  for (int i = 0; i < 4; ++i) {
    float g = slope * exp2_approx((z[i] - lse) * log2_e);
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
    ROSE_UNROLL()
    for (int i = 0; i < 4; ++i) {
      if (col + i < cols) row[col + i] = out[i];
    }
  }
}

// Copy, score, merge, and write the gradient.

/// kGradient: write gradients; kStaged: keep a.staged runs of the block's piece of the row in shared memory.
template <class Out, bool kGradient, bool kStaged, bool kWide>
__global__ void __launch_bounds__(kThreads) score_kernel(Scores a) {
  extern __shared__ __align__(16) float memory[];
  __shared__ float row_lse;
  Cluster cluster;
  const int blocks = cluster.size();
  const std::int64_t row = blockIdx.x / static_cast<unsigned>(blocks);
  const float* logits = a.logits + row * a.stride;
  const int first = cluster.rank() * a.runs_of_block * kRunTiles;
  const int last = min(a.tiles, first + a.runs_of_block * kRunTiles);
  float* piece = memory;
  auto* mine = reinterpret_cast<TileState*>(memory + (kStaged ? a.staged * kRunTiles * kTile : 0));
  TileState* all = mine + a.runs_of_block;
  const int target = a.targets != nullptr ? a.targets[row] : 0;
  const bool valid = target >= 0 && target < a.cols;
  const float chosen = valid ? logits[target] : __int_as_float(0x7fffffff);
  const int q = static_cast<int>(threadIdx.x) % kLanes;
  // Score the runs of this block, one for each warp at a time.
  const int warp = static_cast<int>(threadIdx.x) / 32,
            lane_tile = static_cast<int>(threadIdx.x) % 32 / kLanes;
  if constexpr (kStaged) {
    ROSE_UNROLL()
    for (int round = 0; round < kRounds; ++round) {
      const int run = warp + round * kWarps;
      for (int half = 0; half < kHalves; ++half) {
        const int tile = first + run * kRunTiles + half * kWarpTiles + lane_tile;
        if (run < a.staged && tile < last) stage_lane<kWide>(logits, a.cols, tile, first, q, piece);
      }
      copy_async_commit();
    }
  }
  int round = 0;
  for (int run = warp; run < a.runs_of_block && first + run * kRunTiles < last;
       run += kWarps, ++round) {
    if constexpr (kStaged) wait_for_round(round);
    TileState halves[kHalves];
    ROSE_UNROLL()
    for (int half = 0; half < kHalves; ++half) {
      const int tile = first + run * kRunTiles + half * kWarpTiles + lane_tile;
      float z[kPerLane];
      if (kStaged && run < a.staged) {
        ROSE_UNROLL()
        for (int j = 0; j < 4; ++j) {
          const float4 four =
              tile < last ? *reinterpret_cast<const float4*>(piece + column_of(tile - first, q, j))
                          : make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
          z[4 * j] = four.x, z[4 * j + 1] = four.y, z[4 * j + 2] = four.z, z[4 * j + 3] = four.w;
        }
      } else {
        load_lane<kWide>(logits, tile < last ? a.cols : 0, tile, q, z);
      }
      halves[half] = score_tile(z);
    }
    const TileState state = merge_run(halves);
    if (threadIdx.x % 32 == 0) mine[run] = state;
  }
  cluster.sync();
  for (int k = threadIdx.x; k < a.runs; k += kThreads) {
    all[k] = cluster.shared_of(mine, k / a.runs_of_block)[k % a.runs_of_block];
  }
  __syncthreads();
  cluster.arrive();
  if (threadIdx.x < 32) {
    const float lse = merge_runs(all, a.runs);
    if (threadIdx.x == 0) row_lse = lse;
  }
  __syncthreads();
  const float lse = row_lse;
  if (cluster.rank() == 0 && threadIdx.x == 0) {
    if (a.lse != nullptr) a.lse[row] = lse;
    const float result = a.sign * (chosen - lse);
    if (a.logprob != nullptr) a.logprob[row] = kGradient && target < 0 ? 0.0f : result;
  }
  if constexpr (kGradient) {
    // Write the gradient of this block's piece.

    // Ask for the row that will be read here next.
    if (kStaged && row + a.ahead < a.rows) {
      constexpr int line = 32;  // logits
      const float* next = logits + a.ahead * a.stride + first * kTile;
      const int count = min(a.cols - first * kTile, a.ahead_runs * kRunTiles * kTile);
      for (int at = static_cast<int>(threadIdx.x) * line; at < count; at += kThreads * line)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(next + at));
    }
    Out* gradient = static_cast<Out*>(a.gradient) + row * a.gradient_stride;
    const int end = min(a.cols, last * kTile), kept = (first + a.staged * kRunTiles) * kTile;
    const float scale = a.terms.weights != nullptr ? a.scale * a.terms.weights[row] : a.scale;
    const float slope = scale * (1.0f + 2.0f * a.terms.z * lse);  // of the log-sum-exp
    ROSE_UNROLL(4)
    for (int col = first * kTile + static_cast<int>(threadIdx.x) * 4; col < end;
         col += kThreads * 4) {
      float z[4];
      if (kStaged && col < kept) {
        const float4 four = *reinterpret_cast<const float4*>(piece + col - first * kTile);
        z[0] = four.x, z[1] = four.y, z[2] = four.z, z[3] = four.w;
      } else {
        ROSE_UNROLL()
        for (int i = 0; i < 4; ++i) z[i] = col + i < a.cols ? logits[col + i] : 0.0f;
      }
      store_gradient<Out>(gradient, col, a.cols, kWide, z, lse, target, slope, scale);
    }
  }
  cluster.wait();
}

// Choose the cluster.
struct ClusterPlan {
  int blocks = 1;
  int own = 0, staged = 0;  // runs of a block, and how many of them it keeps
  std::size_t bytes = 0;
};

ClusterPlan plan_of(int runs, int blocks, std::size_t budget) {
  const int own = (runs + blocks - 1) / blocks;
  const std::size_t states = static_cast<std::size_t>(own + runs) * sizeof(TileState);
  constexpr std::size_t run = sizeof(float) * numerics::logsumexp_run;
  const std::size_t room = budget > states ? (budget - states) / run : 0;
  const int staged = std::min(own, static_cast<int>(room));
  return {blocks, own, staged, states + static_cast<std::size_t>(staged) * run};
}

ClusterPlan plan_clusters(int runs, bool gradient, std::int64_t rows) {
  int device = 0, most = 0;
  ROSE_CUDA_CHECK(cudaGetDevice(&device));
  ROSE_CUDA_CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  constexpr int hopper = 90, few_rows = 64, widest = 8;
  const int blocks_allowed = running_capability() >= hopper ? widest : 1;
  if (!gradient) return plan_of(runs, rows <= few_rows ? blocks_allowed : 1, 0);
  constexpr std::size_t reserved =
      1536;  // of each block: the runtime's part, and what is not dynamic
  ClusterPlan plan;
  for (int blocks = 1; blocks <= blocks_allowed; blocks *= 2) {
    plan = plan_of(runs, blocks, static_cast<std::size_t>(most) / 3 - reserved);
    if (plan.staged == plan.own) break;
  }
  return plan;
}

}  // namespace

// Launch clusters.

/// How many clusters of this configuration are resident at a time; remembered.
template <class Kernel>
int resident_clusters(Kernel kernel, const cudaLaunchConfig_t& config, int blocks) {
  static std::mutex mutex;
  static std::map<std::tuple<const void*, int, std::size_t>, int> known;
  const std::lock_guard lock(mutex);
  int& count = known[{reinterpret_cast<const void*>(kernel), blocks, config.dynamicSmemBytes}];
  if (count > 0) return count;
  if (blocks > 1) {
    ROSE_CUDA_CHECK(cudaOccupancyMaxActiveClusters(&count, kernel, &config));
  } else {
    int device = 0, processors = 0;
    ROSE_CUDA_CHECK(cudaGetDevice(&device));
    ROSE_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
    ROSE_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, kernel, kThreads,
                                                                  config.dynamicSmemBytes));
    count *= processors;
  }
  return count = std::max(count, 1);
}

template <class Out, bool kGradient>
void launch_scores(Scores a, std::int64_t rows, bool wide, Stream stream) {
  const ClusterPlan plan = plan_clusters(a.runs, kGradient, rows);
  a.runs_of_block = plan.own, a.staged = plan.staged;
  const auto launch = [&](auto kernel, bool staged) {
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
    if (staged) {
      a.ahead = resident_clusters(kernel, config, plan.blocks);
      a.ahead_runs = plan.own / 3;
    }
    ROSE_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, a));
  };
  if constexpr (kGradient) {
    if (plan.staged > 0) {
      wide ? launch(score_kernel<Out, true, true, true>, true)
           : launch(score_kernel<Out, true, true, false>, true);
      return;
    }
  }
  wide ? launch(score_kernel<Out, kGradient, false, true>, false)
       : launch(score_kernel<Out, kGradient, false, false>, false);
}

Scores scores_of(const Matrix& logits, const std::int32_t* targets, float* logprob, float* lse) {
  Scores a{};
  a.logits = static_cast<const float*>(logits.data);
  a.rows = logits.rows;
  a.stride = logits.row_stride();
  a.cols = static_cast<int>(logits.cols);
  a.tiles = static_cast<int>(ceil_div(logits.cols, kTile));
  a.runs = static_cast<int>(ceil_div(logits.cols, numerics::logsumexp_run));
  a.targets = targets, a.logprob = logprob, a.lse = lse, a.sign = 1.0f;
  return a;
}

/// Whether every row begins at a multiple of 16 bytes and ends with a whole 16 bytes (8 of bf16).
bool in_fours(const Matrix& m) {
  return is_wide_pointer(m.data) && m.cols % 4 == 0 && (m.rows <= 1 || m.row_stride() % 4 == 0);
}

void launch_token_logprob(const Matrix& logits, const std::int32_t* targets, float* logprob,
                          float* lse, Stream stream) {
  launch_scores<float, false>(scores_of(logits, targets, logprob, lse), logits.rows,
                              in_fours(logits), stream);
}

void launch_cross_entropy(const Matrix& logits, const std::int32_t* targets, float scale,
                          const Matrix& dlogits, float* losses, float* lse, const LossTerms& terms,
                          Stream stream) {
  Scores a = scores_of(logits, targets, losses, lse);
  a.sign = -1.0f, a.scale = scale, a.terms = terms;
  a.gradient = dlogits.data, a.gradient_stride = dlogits.row_stride();
  const bool wide = in_fours(logits) && in_fours(dlogits);
  with_activation(dlogits.dtype,
                  [&]<class Out>(Out*) { launch_scores<Out, true>(a, logits.rows, wide, stream); });
}

}  // namespace rose::kernels::gpu
