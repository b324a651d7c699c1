// Step and norm.

#include "rose/kernels/gpu/group.cuh"
#include "rose/kernels/gpu/optimizer.h"
#include "rose/kernels/gpu/philox.cuh"

namespace rose::kernels::gpu {
namespace {

// Eight parameters at a time.
constexpr int kThreads = 256;

struct AdamWArrays {
  void* weight;
  const void* gradient;
  float *first, *second;
  __nv_bfloat16* copy;
  const float* scale;
  std::int64_t count;
  bool by_chance, half_copy;
  std::uint64_t seed, stream, first_element;
};

template <class W, class G, bool kWide>
__global__ void __launch_bounds__(kThreads) adamw_kernel(AdamWArrays a, AdamWStep step) {
  const std::int64_t at = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * group_size,
                     left = a.count - at;
  if (left <= 0) return;
  W* weights = static_cast<W*>(a.weight) + at;
  Group<W> weight = load_group<kWide>(weights, left);
  const Group<G> gradient = load_group<kWide>(static_cast<const G*>(a.gradient) + at, left);
  Group<float> first = load_group<kWide>(a.first + at, left),
               second = load_group<kWide>(a.second + at, left);
  const float scale = a.scale != nullptr ? *a.scale : 1.0f;
  Group<__nv_bfloat16> copy;
  ROSE_UNROLL()
  for (int e = 0; e < group_size; ++e) {
    const AdamWState next = adamw_element({to_float(weight.at[e]), first.at[e], second.at[e]},
                                          to_float(gradient.at[e]) * scale, step);
    const float updated = next.weight;
    first.at[e] = next.first, second.at[e] = next.second;
    if constexpr (sizeof(W) == sizeof(float)) {
      weight.at[e] = updated;
      copy.at[e] = sixteen_bits(updated, a.half_copy);
    } else {
      const std::uint64_t element = a.first_element + static_cast<std::uint64_t>(at + e);
      weight.at[e] = a.by_chance
                         ? to_bf16_stochastic(updated, rounding_bits(a.seed, a.stream, element))
                         : __float2bfloat16_rn(updated);
    }
  }
  store_group<kWide>(weights, weight, left);
  store_group<kWide>(a.first + at, first, left);
  store_group<kWide>(a.second + at, second, left);
  if (sizeof(W) == sizeof(float) && a.copy != nullptr) store_group<kWide>(a.copy + at, copy, left);
}

// The sum of squares of a block.
constexpr int kLanes = 128;
static_assert(kLanes * group_size == norm_block);

template <class T, bool kWide>
__global__ void __launch_bounds__(kLanes)
    square_sums_kernel(const T* gradient, std::int64_t count, double* sums) {
  __shared__ double shared[kLanes];
  const std::int64_t at =
      std::int64_t{blockIdx.x} * norm_block + static_cast<std::int64_t>(threadIdx.x) * group_size;
  const Group<T> group = load_group<kWide>(gradient + at, count - at);
  double sum = 0.0;
  ROSE_UNROLL()
  for (int e = 0; e < group_size; ++e) {
    const double g = to_float(group.at[e]);
    sum += g * g;
  }
  shared[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  double of[kLanes / 32];
  ROSE_UNROLL()
  for (int i = 0; i < kLanes / 32; ++i) of[i] = shared[i * 32 + threadIdx.x];
  ROSE_UNROLL()
  for (int half = kLanes / 64; half > 0; half /= 2) {
    ROSE_UNROLL()
    for (int i = 0; i < half; ++i) of[i] += of[i + half];
  }
  ROSE_UNROLL()
  for (int step = 16; step > 0; step /= 2) of[0] += __shfl_xor_sync(full_warp, of[0], step);
  if (threadIdx.x == 0) sums[blockIdx.x] = of[0];
}

// A tree over 1,024 neighbours, and the end of it.
constexpr int kFold = 1024;

__global__ void __launch_bounds__(kFold)
    fold_kernel(const double* sums, std::int64_t count, double* to) {
  __shared__ double shared[kFold];
  const std::int64_t i = std::int64_t{blockIdx.x} * kFold + threadIdx.x;
  shared[threadIdx.x] = i < count ? sums[i] : 0.0;
  for (unsigned stride = 1; stride < kFold; stride *= 2) {
    __syncthreads();
    if (threadIdx.x % (2 * stride) == 0 && i + stride < count)
      shared[threadIdx.x] += shared[threadIdx.x + stride];
  }
  if (threadIdx.x == 0) to[blockIdx.x] = shared[0];
}

__global__ void clip_kernel(const double* total, float limit, float* result) {
  const auto norm = static_cast<float>(total != nullptr ? sqrt(*total) : 0.0);
  result[0] = norm;
  result[1] = norm > limit ? limit / norm : 1.0f;
}

}  // namespace

// Choose types, and walk up the tree.
void launch_adamw(const AdamWParameter& p, const AdamWStep& step, const float* scale,
                  Stream stream) {
  const AdamWArrays a{p.weight.data,
                      p.gradient.data,
                      p.first,
                      p.second,
                      static_cast<__nv_bfloat16*>(p.copy.data),
                      scale,
                      p.weight.rows * p.weight.cols,
                      p.by_chance,
                      p.copy.dtype == DType::f16,
                      p.key.seed,
                      rounding_stream(p.key),
                      static_cast<std::uint64_t>(p.key.first_element)};
  const bool wide = a.count % group_size == 0 && is_wide_pointer(a.weight) &&
                    is_wide_pointer(a.gradient) && is_wide_pointer(a.first) &&
                    is_wide_pointer(a.second) && is_wide_pointer(a.copy);
  const auto blocks = static_cast<unsigned>(ceil_div(a.count, std::int64_t{kThreads} * group_size));
  with_element(p.weight.dtype, [&]<class W>(W*) {
    with_activation(p.gradient.dtype, [&]<class G>(G*) {
      const auto launch = [&](auto kernel) {
        kernel<<<blocks, kThreads, 0, to_cuda(stream)>>>(a, step);
      };
      wide ? launch(adamw_kernel<W, G, true>) : launch(adamw_kernel<W, G, false>);
      ROSE_LAUNCH_CHECK("adamw");
    });
  });
}

/// The tree over `count` sums, with room for as many behind them. Where the total lies; null without sums.
const double* fold_tree(double* sums, std::int64_t count, Stream stream) {
  if (count == 0) return nullptr;
  const double* from = sums;
  double* to = sums + count;
  for (std::int64_t left = count; left > 1;) {
    const std::int64_t next = ceil_div(left, kFold);
    fold_kernel<<<static_cast<unsigned>(next), kFold, 0, to_cuda(stream)>>>(from, left, to);
    from = to;
    to += next;
    left = next;
  }
  return from;
}

void launch_gradient_norm(std::span<const Matrix> gradients, float limit, float* result,
                          Workspace workspace, Stream stream) {
  auto* const sums = static_cast<double*>(workspace.data);
  std::int64_t count = 0;
  for (const Matrix& g : gradients) {
    const std::int64_t elements = g.rows * g.cols, blocks = ceil_div(elements, norm_block);
    if (blocks == 0) continue;
    with_activation(g.dtype, [&]<class T>(T*) {
      const auto launch = [&](auto kernel) {
        kernel<<<static_cast<unsigned>(blocks), kLanes, 0, to_cuda(stream)>>>(
            static_cast<const T*>(g.data), elements, sums + count);
      };
      const bool wide = is_wide_pointer(g.data) && elements % group_size == 0;
      wide ? launch(square_sums_kernel<T, true>) : launch(square_sums_kernel<T, false>);
    });
    count += blocks;
  }
  clip_kernel<<<1, 1, 0, to_cuda(stream)>>>(fold_tree(sums, count, stream), limit, result);
  ROSE_LAUNCH_CHECK("gradient_norm");
}

}  // namespace rose::kernels::gpu
