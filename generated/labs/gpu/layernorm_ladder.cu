// Climb the ladder.

#include "labs/gpu/layernorm_ladder.h"
#include "rose/kernels/gpu/cuda.cuh"
#include "rose/kernels/gpu/group.cuh"

namespace rose::labs {
namespace {

using namespace kernels::gpu;
using Number = __nv_bfloat16;
constexpr int kThreads = 256;

// Fold moments, and sums, over a block.
__device__ __forceinline__ Moments joined(const Moments& a, const Moments& b) {
  const float count = a.count + b.count;
  if (count == 0.0f) return a;
  const float delta = b.mean - a.mean, share = b.count / count;
  return {count, a.mean + delta * share, a.squares + b.squares + delta * delta * a.count * share};
}

/// Every thread gets the moments of all. `shared` has a place for each warp, and is used once.
__device__ Moments fold(Moments mine, Moments* shared) {
  ROSE_UNROLL()
  for (int step = 16; step > 0; step /= 2) {
    mine = joined(mine, {__shfl_xor_sync(full_warp, mine.count, step),
                         __shfl_xor_sync(full_warp, mine.mean, step),
                         __shfl_xor_sync(full_warp, mine.squares, step)});
  }
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = mine;
  __syncthreads();
  Moments all = shared[0];
  for (int w = 1; w < kThreads / 32; ++w) all = joined(all, shared[w]);
  return all;
}

__device__ float fold_sum(float mine, float* shared) {
  ROSE_UNROLL()
  for (int step = 16; step > 0; step /= 2) mine += __shfl_xor_sync(full_warp, mine, step);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = mine;
  __syncthreads();
  float all = shared[0];
  for (int w = 1; w < kThreads / 32; ++w) all += shared[w];
  return all;
}

__device__ __forceinline__ Number normed(float x, float mean, float inverse) {
  return from_float<Number>((x - mean) * inverse);
}
__device__ __forceinline__ float inverse_of(float variance) {
  return rsqrtf(variance + layernorm_epsilon);
}

// Two passes, one pass, and Welford's, a number at a time.
enum class Way { two_passes, one_pass, welford };

template <Way kWay>
__global__ void __launch_bounds__(kThreads) narrow_kernel(const Number* x, Number* y, int cols) {
  __shared__ float sums[2][kThreads / 32];
  __shared__ Moments moments[kThreads / 32];
  x += std::int64_t{blockIdx.x} * cols, y += std::int64_t{blockIdx.x} * cols;
  const int first = static_cast<int>(threadIdx.x);
  const float count = static_cast<float>(cols);
  float mean = 0.0f, variance = 0.0f;
  if constexpr (kWay == Way::welford) {
    Moments mine{0.0f, 0.0f, 0.0f};
    for (int c = first; c < cols; c += kThreads) mine = joined(mine, {1.0f, to_float(x[c]), 0.0f});
    const Moments all = fold(mine, moments);
    mean = all.mean, variance = all.squares / count;
  } else {
    float sum = 0.0f, squares = 0.0f;
    for (int c = first; c < cols; c += kThreads) {
      const float z = to_float(x[c]);
      sum += z;
      if constexpr (kWay == Way::one_pass) squares = __fmaf_rn(z, z, squares);
    }
    mean = fold_sum(sum, sums[0]) / count;
    if constexpr (kWay == Way::two_passes) {
      for (int c = first; c < cols; c += kThreads) {
        const float off = to_float(x[c]) - mean;
        squares = __fmaf_rn(off, off, squares);
      }
    }
    variance = fold_sum(squares, sums[1]) / count;
    if constexpr (kWay == Way::one_pass) variance = fmaxf(variance - mean * mean, 0.0f);
  }
  const float inverse = inverse_of(variance);
  for (int c = first; c < cols; c += kThreads) y[c] = normed(to_float(x[c]), mean, inverse);
}

// Welford's, eight numbers at a time.

/// The moments of eight numbers, by two passes over registers.
__device__ __forceinline__ Moments moments_of(const Group<Number>& group) {
  float sum = 0.0f, squares = 0.0f;
  ROSE_UNROLL()
  for (int e = 0; e < group_size; ++e) sum += to_float(group.at[e]);
  const float mean = sum / group_size;
  ROSE_UNROLL()
  for (int e = 0; e < group_size; ++e) {
    const float off = to_float(group.at[e]) - mean;
    squares = __fmaf_rn(off, off, squares);
  }
  return {group_size, mean, squares};
}

__global__ void __launch_bounds__(kThreads) wide_kernel(const Number* x, Number* y, int cols) {
  __shared__ Moments moments[kThreads / 32];
  x += std::int64_t{blockIdx.x} * cols, y += std::int64_t{blockIdx.x} * cols;
  const int first = static_cast<int>(threadIdx.x) * group_size, step = kThreads * group_size;
  Moments mine{0.0f, 0.0f, 0.0f};
  for (int c = first; c < cols; c += step)
    mine = joined(mine, moments_of(load_group<true>(x + c, cols - c)));
  const Moments all = fold(mine, moments);
  const float inverse = inverse_of(all.squares / static_cast<float>(cols));
  for (int c = first; c < cols; c += step) {
    Group<Number> group = load_group<true>(x + c, cols - c);
    ROSE_UNROLL()
    for (int e = 0; e < group_size; ++e)
      group.at[e] = normed(to_float(group.at[e]), all.mean, inverse);
    store_group<true>(y + c, group, cols - c);
  }
}

// One look, two passes over registers.
constexpr int kGroups = 4;

__global__ void __launch_bounds__(kThreads) held_kernel(const Number* x, Number* y, int cols) {
  __shared__ float sums[2][kThreads / 32];
  x += std::int64_t{blockIdx.x} * cols, y += std::int64_t{blockIdx.x} * cols;
  const int first = static_cast<int>(threadIdx.x) * group_size, step = kThreads * group_size;
  const float count = static_cast<float>(cols);
  Group<Number> in[kGroups];
  float sum = 0.0f, squares = 0.0f;
  ROSE_UNROLL()
  for (int g = 0; g < kGroups; ++g)
    in[g] = load_group<true>(x + first + g * step, cols - first - g * step);
  ROSE_UNROLL()
  for (int g = 0; g < kGroups; ++g) {
    ROSE_UNROLL()
    for (int e = 0; e < group_size; ++e) sum += to_float(in[g].at[e]);  // zeros beyond the row
  }
  const float mean = fold_sum(sum, sums[0]) / count;
  ROSE_UNROLL()
  for (int g = 0; g < kGroups; ++g) {
    if (first + g * step >= cols) continue;
    ROSE_UNROLL()
    for (int e = 0; e < group_size; ++e) {
      const float off = to_float(in[g].at[e]) - mean;
      squares = __fmaf_rn(off, off, squares);
    }
  }
  const float inverse = inverse_of(fold_sum(squares, sums[1]) / count);
  ROSE_UNROLL()
  for (int g = 0; g < kGroups; ++g) {
    ROSE_UNROLL()
    for (int e = 0; e < group_size; ++e) in[g].at[e] = normed(to_float(in[g].at[e]), mean, inverse);
    store_group<true>(y + first + g * step, in[g], cols - first - g * step);
  }
}

// Launch a rung.
using Kernel = void(const Number*, Number*, int);

template <Kernel* kKernel, std::int64_t kMost>
void run(const Matrix& x, const Matrix& y, Stream stream) {
  check_layernorm(x, y, kMost);
  if (x.empty()) return;
  kKernel<<<static_cast<unsigned>(x.rows), kThreads, 0, to_cuda(stream)>>>(
      static_cast<const Number*>(x.data), static_cast<Number*>(y.data), static_cast<int>(x.cols));
  ROSE_LAUNCH_CHECK("layernorm rung");
}

constexpr std::int64_t any = std::int64_t{1} << 30;
constexpr Rung<LayernormRows> ladder[] = {
    {"two passes", "the definition: three looks at the row",
     run<narrow_kernel<Way::two_passes>, any>},
    {"one pass", "sums and squares: two looks, and digits lost",
     run<narrow_kernel<Way::one_pass>, any>},
    {"welford", "two looks, a division for each number", run<narrow_kernel<Way::welford>, any>},
    {"wide", "16 bytes per access, a division for eight", run<wide_kernel, any>},
    {"registers", "one look, two passes over registers", run<held_kernel, layernorm_held>},
};

}  // namespace

Rungs<LayernormRows> layernorm_ladder() {
  return ladder;
}

}  // namespace rose::labs
