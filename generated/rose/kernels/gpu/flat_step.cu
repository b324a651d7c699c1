// Step, and sum squares, block by block.

#include "rose/kernels/gpu/flat_step.h"
#include "rose/kernels/gpu/group.cuh"

namespace rose::kernels::gpu {

const double* fold_tree(double* sums, std::int64_t count, Stream stream);  // optimizer.cu

namespace {

constexpr int kThreads = 128;
static_assert(kThreads * group_size == norm_block);

struct Steps {
  AdamWStep of[most_groups];
};

// Eight parameters of a block.
template <class Copy>
__global__ void __launch_bounds__(kThreads)
    flat_adamw_kernel(const FlatBlock* blocks, FlatArrays a, Steps steps, float scale) {
  const FlatBlock block = blocks[blockIdx.x];
  const std::int64_t left = block.count - static_cast<std::int64_t>(threadIdx.x) * group_size;
  if (left <= 0) return;
  const std::int64_t at = block.first + static_cast<std::int64_t>(threadIdx.x) * group_size;
  const AdamWStep step = steps.of[block.group];
  Group<float> weight = load_group<true>(a.weight + at, left);
  const Group<float> gradient = load_group<true>(a.gradient + at, left);
  Group<float> first = load_group<true>(a.first + at, left),
               second = load_group<true>(a.second + at, left);
  Group<Copy> copy;
  ROSE_UNROLL()
  for (int e = 0; e < group_size; ++e) {
    const AdamWState next =
        adamw_element({weight.at[e], first.at[e], second.at[e]}, gradient.at[e] * scale, step);
    weight.at[e] = next.weight, first.at[e] = next.first, second.at[e] = next.second;
    copy.at[e] = from_float<Copy>(next.weight);
  }
  store_group<true>(a.weight + at, weight, left);
  store_group<true>(a.first + at, first, left);
  store_group<true>(a.second + at, second, left);
  if (a.copy != nullptr) store_group<true>(static_cast<Copy*>(a.copy) + at, copy, left);
}

// The sum of squares of a block.
__global__ void __launch_bounds__(kThreads)
    flat_square_kernel(const FlatBlock* blocks, const float* gradient, double* sums) {
  constexpr int warp = 32;
  __shared__ double shared[kThreads];
  const FlatBlock block = blocks[blockIdx.x];
  const std::int64_t left = block.count - static_cast<std::int64_t>(threadIdx.x) * group_size;
  const Group<float> group = load_group<true>(
      gradient + block.first + static_cast<std::int64_t>(threadIdx.x) * group_size, left);
  double sum = 0.0;
  ROSE_UNROLL()
  for (int e = 0; e < group_size; ++e) {
    const double g = e < left ? group.at[e] : 0.0f;
    sum += g * g;
  }
  shared[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x >= warp) return;
  double of[kThreads / warp];
  ROSE_UNROLL()
  for (int i = 0; i < kThreads / warp; ++i) of[i] = shared[i * warp + threadIdx.x];
  ROSE_UNROLL()
  for (int half = kThreads / warp / 2; half > 0; half /= 2) {
    ROSE_UNROLL()
    for (int i = 0; i < half; ++i) of[i] += of[i + half];
  }
  ROSE_UNROLL()
  for (int step = warp / 2; step > 0; step /= 2) of[0] += __shfl_xor_sync(full_warp, of[0], step);
  if (threadIdx.x == 0) sums[blockIdx.x] = of[0];
}

}  // namespace

// One launch for all.
void launch_flat_adamw(const FlatBlock* blocks, std::int64_t count, const FlatArrays& arrays,
                       std::span<const AdamWStep> groups, float scale, Stream stream) {
  Steps steps{};
  for (std::size_t i = 0; i < groups.size(); ++i) steps.of[i] = groups[i];
  with_activation(arrays.copy_type, [&]<class Copy>(Copy*) {
    flat_adamw_kernel<Copy><<<static_cast<unsigned>(count), kThreads, 0, to_cuda(stream)>>>(
        blocks, arrays, steps, scale);
  });
  ROSE_LAUNCH_CHECK("flat_adamw");
}

void launch_flat_square_sum(const FlatBlock* blocks, std::int64_t count, const float* gradient,
                            double* result, Workspace workspace, Stream stream) {
  if (count == 0) {
    ROSE_CUDA_CHECK(cudaMemsetAsync(result, 0, sizeof(double), to_cuda(stream)));
    return;
  }
  auto* const sums = static_cast<double*>(workspace.data);
  flat_square_kernel<<<static_cast<unsigned>(count), kThreads, 0, to_cuda(stream)>>>(
      blocks, gradient, sums);
  ROSE_CUDA_CHECK(cudaMemcpyAsync(result, fold_tree(sums, count, stream), sizeof(double),
                                  cudaMemcpyDeviceToDevice, to_cuda(stream)));
  ROSE_LAUNCH_CHECK("flat_square_sum");
}

}  // namespace rose::kernels::gpu
