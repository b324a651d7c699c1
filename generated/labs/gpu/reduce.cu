// Climb the ladder.

#include <cooperative_groups.h>

#include <utility>

#include "labs/gpu/reduce.h"
#include "rose/kernels/gpu/cuda.cuh"
#include "rose/kernels/gpu/group.cuh"

namespace rose::labs {
namespace {

using kernels::gpu::ceil_div;
using kernels::gpu::full_warp;
using kernels::gpu::to_cuda;

constexpr int kThreads = 256;

// Add neighbours, then neighbours of neighbours.
__global__ void interleaved_kernel(const float* in, std::int64_t count, float* out) {
  __shared__ float sum[kThreads];
  const int t = static_cast<int>(threadIdx.x);
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + t;
  sum[t] = i < count ? in[i] : 0;
  for (int distance = 1; distance < kThreads; distance *= 2) {
    __syncthreads();
    if (t % (2 * distance) == 0) sum[t] += sum[t + distance];
  }
  if (t == 0) out[blockIdx.x] = sum[0];
}

// Add the upper half to the lower half.

/// The sum of a block's values, in thread 0.
__device__ float halve(float value) {
  __shared__ float sum[kThreads];
  const int t = static_cast<int>(threadIdx.x);
  sum[t] = value;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (t < half) sum[t] += sum[t + half];
  }
  return sum[0];
}

__global__ void halving_kernel(const float* in, std::int64_t count, float* out) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const float sum = halve(i < count ? in[i] : 0);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

// Add once while loading.
__global__ void first_add_kernel(const float* in, std::int64_t count, float* out) {
  const std::int64_t i = std::int64_t{blockIdx.x} * 2 * kThreads + threadIdx.x;
  float value = i < count ? in[i] : 0;
  if (i + kThreads < count) value += in[i + kThreads];
  const float sum = halve(value);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

// Let lanes read each other's registers.
__device__ float warp_sum(float value) {
  ROSE_UNROLL()
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(full_warp, value, step);
  return value;
}

/// The sum of a block's values, in the first warp.
__device__ float block_sum(float value) {
  constexpr int warps = kThreads / 32;
  __shared__ float of_warp[warps];
  value = warp_sum(value);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  if (lane == 0) of_warp[warp] = value;
  __syncthreads();
  return warp_sum(warp == 0 && lane < warps ? of_warp[lane] : 0);
}

__global__ void shuffle_kernel(const float* in, std::int64_t count, float* out) {
  const std::int64_t i = std::int64_t{blockIdx.x} * 2 * kThreads + threadIdx.x;
  float value = i < count ? in[i] : 0;
  if (i + kThreads < count) value += in[i + kThreads];
  value = block_sum(value);
  if (threadIdx.x == 0) out[blockIdx.x] = value;
}

// Walk through the array in steps of the grid.

/// A thread's share of the array, kUnroll loads at a time. `in` is aligned to 16 bytes.
template <int kUnroll>
__device__ float walk(const float* in, std::int64_t count, std::int64_t thread,
                      std::int64_t threads) {
  const auto* groups = reinterpret_cast<const float4*>(in);
  const std::int64_t whole = count / 4;
  float4 sum[kUnroll] = {};
  const auto add = [](float4& to, const float4& x) {
    to.x += x.x, to.y += x.y, to.z += x.z, to.w += x.w;
  };
  std::int64_t g = thread;
  for (; g + (kUnroll - 1) * threads < whole; g += kUnroll * threads) {
    float4 x[kUnroll];
    ROSE_UNROLL()
    for (int u = 0; u < kUnroll; ++u) x[u] = __ldcs(groups + g + u * threads);
    ROSE_UNROLL()
    for (int u = 0; u < kUnroll; ++u) add(sum[u], x[u]);
  }
  for (; g < whole; g += threads) add(sum[0], groups[g]);
  ROSE_UNROLL()
  for (int u = 1; u < kUnroll; ++u) add(sum[0], sum[u]);
  float total = (sum[0].x + sum[0].y) + (sum[0].z + sum[0].w);
  if (4 * whole + thread < count) total += in[4 * whole + thread];
  return total;
}

template <int kUnroll>
__global__ void __launch_bounds__(kThreads)
    grid_kernel(const float* in, std::int64_t count, float* out) {
  const std::int64_t threads = std::int64_t{gridDim.x} * kThreads;
  const float sum = block_sum(
      walk<kUnroll>(in, count, std::int64_t{blockIdx.x} * kThreads + threadIdx.x, threads));
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

// The last block adds up the blocks.

/// Adds up what every block has left, in the block that ends last. `done` is zero before, and after.
__device__ void finish(float sum, float* of_block, unsigned* done, unsigned blocks, unsigned block,
                       bool speaks, float* out) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    last = false;
    if (speaks) {
      of_block[block] = sum;
      __threadfence();
      last = atomicAdd(done, 1) == blocks - 1;
    }
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  float total = 0;
  for (unsigned i = threadIdx.x; i < blocks; i += kThreads) total += __ldcg(of_block + i);
  __syncthreads();  // block_sum used its shared memory before
  total = block_sum(total);
  if (threadIdx.x == 0) *out = total, *done = 0;
}

__global__ void __launch_bounds__(kThreads)
    one_launch_kernel(const float* in, std::int64_t count, float* of_block, unsigned* done,
                      float* out) {
  const std::int64_t threads = std::int64_t{gridDim.x} * kThreads;
  const float sum =
      block_sum(walk<4>(in, count, std::int64_t{blockIdx.x} * kThreads + threadIdx.x, threads));
  finish(sum, of_block, done, gridDim.x, blockIdx.x, true, out);
}

// Eight blocks speak with one voice.
constexpr int kCluster = 8;

__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads)
    cluster_kernel(const float* in, std::int64_t count, float* of_block, unsigned* done,
                   float* out) {
  const auto cluster = cooperative_groups::this_cluster();
  __shared__ float mine;
  const std::int64_t threads = std::int64_t{gridDim.x} * kThreads;
  float sum =
      block_sum(walk<4>(in, count, std::int64_t{blockIdx.x} * kThreads + threadIdx.x, threads));
  if (threadIdx.x == 0) mine = sum;
  cluster.sync();
  const bool speaks = cluster.block_rank() == 0;
  if (speaks && threadIdx.x == 0) {
    sum = 0;
    for (unsigned rank = 0; rank < kCluster; ++rank) sum += *cluster.map_shared_rank(&mine, rank);
  }
  cluster.sync();  // nobody leaves while somebody reads it
  finish(sum, of_block, done, gridDim.x / kCluster, blockIdx.x / kCluster, speaks, out);
}

// Launch a rung until one number is left.
using Level = void(const float*, std::int64_t, float*);

/// kTake: how many numbers a block of the kernel adds up.
template <Level* kKernel, int kTake>
void level_by_level(const float* in, std::int64_t count, float* out, gpu::Workspace workspace,
                    gpu::Stream stream) {
  gpu::check_workspace(workspace, reduce_workspace(count));
  auto* next = static_cast<float*>(workspace.data);
  float* other = next + ceil_div(count, kTake) + 1;
  do {
    const std::int64_t blocks = count == 0 ? 1 : ceil_div(count, kTake);
    float* const to = blocks == 1 ? out : next;
    kKernel<<<static_cast<unsigned>(blocks), kThreads, 0, to_cuda(stream)>>>(in, count, to);
    in = to, count = blocks;
    std::swap(next, other);
  } while (count > 1);
  ROSE_LAUNCH_CHECK("reduce");
}

/// Blocks that run at once, a multiple of a cluster.
unsigned full_grid() {
  static const unsigned blocks = [] {
    int device = 0, processors = 0;
    ROSE_CUDA_CHECK(cudaGetDevice(&device));
    ROSE_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
    return static_cast<unsigned>(processors) * 8 / kCluster * kCluster;
  }();
  return blocks;
}

template <int kUnroll>
void by_grid(const float* in, std::int64_t count, float* out, gpu::Workspace workspace,
             gpu::Stream stream) {
  gpu::check_workspace(workspace, reduce_workspace(count));
  auto* const of_block = static_cast<float*>(workspace.data);
  grid_kernel<kUnroll><<<full_grid(), kThreads, 0, to_cuda(stream)>>>(in, count, of_block);
  grid_kernel<kUnroll><<<1, kThreads, 0, to_cuda(stream)>>>(of_block, full_grid(), out);
  ROSE_LAUNCH_CHECK("reduce");
}

using OneLaunch = void(const float*, std::int64_t, float*, unsigned*, float*);

template <OneLaunch* kKernel>
void at_once(const float* in, std::int64_t count, float* out, gpu::Workspace workspace,
             gpu::Stream stream) {
  gpu::check_workspace(workspace, reduce_workspace(count));
  auto* const done = static_cast<unsigned*>(workspace.data);
  auto* const of_block = reinterpret_cast<float*>(done + 64);
  ROSE_CUDA_CHECK(cudaMemsetAsync(done, 0, sizeof *done, to_cuda(stream)));
  kKernel<<<full_grid(), kThreads, 0, to_cuda(stream)>>>(in, count, of_block, done, out);
  ROSE_LAUNCH_CHECK("reduce");
}

constexpr Rung<Reduce> ladder[] = {
    {"interleaved", "a tree of neighbours", level_by_level<interleaved_kernel, kThreads>},
    {"halving", "whole warps work or are done", level_by_level<halving_kernel, kThreads>},
    {"first add", "adds once while loading", level_by_level<first_add_kernel, 2 * kThreads>},
    {"shuffle", "lanes read registers of lanes", level_by_level<shuffle_kernel, 2 * kThreads>},
    {"grid stride", "as many blocks as run at once, 16 bytes a load", by_grid<4>},
    {"one launch", "the last block adds up the blocks", at_once<one_launch_kernel>},
    {"cluster", "eight blocks speak with one voice", at_once<cluster_kernel>},
    {"eight loads", "the grid again, with twice as much on the way", by_grid<8>},
};

}  // namespace

Rungs<Reduce> reduce_ladder() {
  return ladder;
}

}  // namespace rose::labs
