// Climb the ladder.

#include <cooperative_groups.h>

#include "labs/gpu/softmax_ladder.h"
#include "rose/kernels/gpu/cuda.cuh"
#include "rose/kernels/gpu/group.cuh"

namespace rose::labs {
namespace {

using namespace kernels::gpu;
using Number = __nv_bfloat16;
constexpr int kThreads = 256;

// Fold pairs over the threads of a block.
struct Shrink {
  __device__ float operator()(float from, float to) const {
    return from == to ? 1.0f : exp2_approx((from - to) * log2_e);
  }
};
/// The merge on the device: a NaN comes through from either side.
__device__ __forceinline__ OnlineSum joined(const OnlineSum& a, const OnlineSum& b) {
  const float highest = a.highest > b.highest || a.highest != a.highest ? a.highest : b.highest;
  const Shrink shrink{};
  return {highest, a.sum * shrink(a.highest, highest) + b.sum * shrink(b.highest, highest)};
}

/// Every thread gets the pair of all. `shared` has a place for each warp, and is free again after a barrier.
__device__ OnlineSum fold(OnlineSum mine, OnlineSum* shared) {
  ROSE_UNROLL()
  for (int step = 16; step > 0; step /= 2) {
    mine = joined(mine, {__shfl_xor_sync(full_warp, mine.highest, step),
                         __shfl_xor_sync(full_warp, mine.sum, step)});
  }
  const int warp = static_cast<int>(threadIdx.x) / 32, warps = static_cast<int>(blockDim.x) / 32;
  if (threadIdx.x % 32 == 0) shared[warp] = mine;
  __syncthreads();
  OnlineSum all = shared[0];
  for (int w = 1; w < warps; ++w) all = joined(all, shared[w]);
  return all;
}

// Three looks: a thread for each row, a block for each row.
__device__ __forceinline__ float weight(float x, float highest) {
  return exp2_approx((x - highest) * log2_e);
}

__global__ void thread_kernel(const Number* x, Number* y, std::int64_t rows, int cols) {
  const std::int64_t row = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  x += row * cols, y += row * cols;
  OnlineSum all{-INFINITY, 0.0f};
  for (int c = 0; c < cols; ++c) all.highest = joined(all, {to_float(x[c]), 0.0f}).highest;
  for (int c = 0; c < cols; ++c) all.sum += weight(to_float(x[c]), all.highest);
  for (int c = 0; c < cols; ++c)
    y[c] = from_float<Number>(weight(to_float(x[c]), all.highest) / all.sum);
}

__global__ void __launch_bounds__(kThreads)
    block_kernel(const Number* x, Number* y, std::int64_t, int cols) {
  __shared__ OnlineSum shared[2][kThreads / 32];
  x += std::int64_t{blockIdx.x} * cols, y += std::int64_t{blockIdx.x} * cols;
  const int first = static_cast<int>(threadIdx.x);
  OnlineSum mine{-INFINITY, 0.0f};
  for (int c = first; c < cols; c += kThreads) mine = joined(mine, {to_float(x[c]), 0.0f});
  const float highest = fold(mine, shared[0]).highest;
  mine = {highest, 0.0f};
  for (int c = first; c < cols; c += kThreads) mine.sum += weight(to_float(x[c]), highest);
  const float inverse = 1.0f / fold(mine, shared[1]).sum;
  for (int c = first; c < cols; c += kThreads)
    y[c] = from_float<Number>(weight(to_float(x[c]), highest) * inverse);
}

// Two looks, narrow and wide.
template <int kEach>  // numbers of one access: 1 or 8
__global__ void __launch_bounds__(kThreads)
    online_kernel(const Number* x, Number* y, std::int64_t, int cols) {
  __shared__ OnlineSum shared[kThreads / 32];
  x += std::int64_t{blockIdx.x} * cols, y += std::int64_t{blockIdx.x} * cols;
  const int first = static_cast<int>(threadIdx.x) * kEach;
  struct alignas(2 * kEach) Some {
    Number at[kEach];
  };
  OnlineSum mine{-INFINITY, 0.0f};
  for (int c = first; c < cols; c += kThreads * kEach) {
    const Some in = *reinterpret_cast<const Some*>(x + c);
    ROSE_UNROLL()
    for (int e = 0; e < kEach; ++e) mine = joined(mine, {to_float(in.at[e]), 1.0f});
  }
  const OnlineSum all = fold(mine, shared);
  const float inverse = 1.0f / all.sum;
  for (int c = first; c < cols; c += kThreads * kEach) {
    Some in = *reinterpret_cast<const Some*>(x + c);
    ROSE_UNROLL()
    for (int e = 0; e < kEach; ++e)
      in.at[e] = from_float<Number>(weight(to_float(in.at[e]), all.highest) * inverse);
    *reinterpret_cast<Some*>(y + c) = in;
  }
}

// One look: the row stays in registers.
constexpr int kGroups = 4;

/// What a thread holds of a row: groups `step` numbers apart, and their pair.
struct Held {
  Group<Number> in[kGroups];

  __device__ OnlineSum load(const Number* x, int first, int step, int cols) {
    OnlineSum mine{-INFINITY, 0.0f};
    ROSE_UNROLL()
    for (int g = 0; g < kGroups; ++g) {
      in[g] = load_group<true>(x + first + g * step, cols - first - g * step);
      if (first + g * step >= cols) continue;
      ROSE_UNROLL()
      for (int e = 0; e < group_size; ++e) {
        const float z = to_float(in[g].at[e]);
        mine.highest = z > mine.highest || z != z ? z : mine.highest;
      }
    }
    ROSE_UNROLL()
    for (int g = 0; g < kGroups; ++g) {
      if (first + g * step >= cols) continue;
      ROSE_UNROLL()
      for (int e = 0; e < group_size; ++e)
        mine.sum += Shrink{}(to_float(in[g].at[e]), mine.highest);
    }
    return mine;
  }
  __device__ void store(Number* y, int first, int step, int cols, const OnlineSum& all) {
    const float inverse = 1.0f / all.sum;
    ROSE_UNROLL()
    for (int g = 0; g < kGroups; ++g) {
      ROSE_UNROLL()
      for (int e = 0; e < group_size; ++e)
        in[g].at[e] = from_float<Number>(weight(to_float(in[g].at[e]), all.highest) * inverse);
      store_group<true>(y + first + g * step, in[g], cols - first - g * step);
    }
  }
};

__global__ void __launch_bounds__(kThreads)
    held_kernel(const Number* x, Number* y, std::int64_t, int cols) {
  __shared__ OnlineSum shared[kThreads / 32];
  const std::int64_t row = std::int64_t{blockIdx.x} * cols;
  const int first = static_cast<int>(threadIdx.x) * group_size, step = kThreads * group_size;
  Held held;
  const OnlineSum mine = held.load(x + row, first, step, cols);
  held.store(y + row, first, step, cols, fold(mine, shared));
}

// Eight blocks hold a long row.
constexpr int kBlocks = 8, kMany = 512;

__global__ void __launch_bounds__(kMany)
    cluster_kernel(const Number* x, Number* y, std::int64_t, int cols) {
#if __CUDA_ARCH__ >= 900
  __shared__ OnlineSum shared[kMany / 32], of_block;
  const auto cluster = cooperative_groups::this_cluster();
  const std::int64_t row = std::int64_t{blockIdx.x} / kBlocks * cols;
  const int rank = static_cast<int>(cluster.block_rank());
  const int step = kBlocks * kMany * group_size;
  const int first = (rank * kMany + static_cast<int>(threadIdx.x)) * group_size;
  Held held;
  const OnlineSum mine = fold(held.load(x + row, first, step, cols), shared);
  if (threadIdx.x == 0) of_block = mine;
  cluster.sync();
  OnlineSum all{-INFINITY, 0.0f};
  for (unsigned b = 0; b < kBlocks; ++b) all = joined(all, *cluster.map_shared_rank(&of_block, b));
  cluster.sync();
  held.store(y + row, first, step, cols, all);
#endif
}

// Launch a rung.
using Kernel = void(const Number*, Number*, std::int64_t, int);

template <Kernel* kKernel, int kThreadsOf, bool kByThread, std::int64_t kMost>
void run(const Matrix& x, const Matrix& y, Stream stream) {
  check_softmax(x, y, kMost);
  if (x.empty()) return;
  const auto blocks = static_cast<unsigned>(kByThread ? ceil_div(x.rows, kThreadsOf) : x.rows);
  kKernel<<<blocks, kThreadsOf, 0, to_cuda(stream)>>>(static_cast<const Number*>(x.data),
                                                      static_cast<Number*>(y.data), x.rows,
                                                      static_cast<int>(x.cols));
  ROSE_LAUNCH_CHECK("softmax rung");
}

void run_cluster(const Matrix& x, const Matrix& y, Stream stream) {
  check_softmax(x, y, softmax_clustered);
  if (running_capability() < 90) bad_argument("device", "clusters need compute capability 9.0");
  if (x.empty()) return;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(x.rows * kBlocks));
  config.blockDim = dim3(kMany);
  config.stream = to_cuda(stream);
  cudaLaunchAttribute size{};
  size.id = cudaLaunchAttributeClusterDimension;
  size.val.clusterDim = {kBlocks, 1, 1};
  config.attrs = &size, config.numAttrs = 1;
  ROSE_CUDA_CHECK(cudaLaunchKernelEx(&config, cluster_kernel, static_cast<const Number*>(x.data),
                                     static_cast<Number*>(y.data), x.rows,
                                     static_cast<int>(x.cols)));
}

constexpr std::int64_t any = std::int64_t{1} << 30;
constexpr Rung<SoftmaxRows> ladder[] = {
    {"thread", "a thread for each row", run<thread_kernel, 128, true, any>},
    {"block", "a block for each row", run<block_kernel, kThreads, false, any>},
    {"online", "maximum and sum in one look", run<online_kernel<1>, kThreads, false, any>},
    {"wide", "16 bytes per access", run<online_kernel<8>, kThreads, false, any>},
    {"cluster", "eight blocks hold the row", run_cluster},
    {"registers", "a block holds the row", run<held_kernel, kThreads, false, softmax_held>},
};

}  // namespace

Rungs<SoftmaxRows> softmax_ladder() {
  return ladder;
}

}  // namespace rose::labs
