// Read each row once, norm it in registers.

#include <type_traits>

#include "rose/kernels/gpu/norm_arguments.h"
#include "rose/kernels/gpu/norm_rows.cuh"

namespace rose::kernels::gpu {
namespace {

// Scale, with the family's roundings.
struct DeviceNorm {
  HeadRows x, residual, sum, y;
  Parameters weight, bias;
  float eps;
  float *mean, *inv;
  std::int64_t rows, cols;
  unsigned heads;
};

template <class T, bool kCentre>
__device__ __forceinline__ T finish(float x, float mean, float inv, float weight, float bias) {
  if constexpr (kCentre) return from_float<T>((x - mean) * inv * weight + bias);
  return from_float<T>(round_to<T>(x * inv) * weight);
}

template <class T>
__device__ __forceinline__ Group<T> add_groups(const Group<T>& a, const Group<T>& b) {
  Group<T> sum;
  ROSE_UNROLL()
  for (int e = 0; e < group_size; ++e)
    sum.at[e] = from_float<T>(to_float(a.at[e]) + to_float(b.at[e]));
  return sum;
}

// A team norms a row that it holds in registers.
template <class T, class Team, bool kCentre>
__global__ void __launch_bounds__(Team::block) norm_kernel(DeviceNorm a) {
  __shared__ float shared[2][Team::block];
  const std::int64_t row = std::int64_t{blockIdx.x} * Team::rows + threadIdx.x / Team::threads;
  const std::int64_t first = static_cast<std::int64_t>(threadIdx.x % Team::threads) * group_size;
  const std::int64_t cols =
      row < a.rows ? a.cols : 0;  // a team without a row loads and stores nothing
  constexpr std::int64_t step = std::int64_t{Team::threads} * group_size;
  Group<T> x[Team::groups];
  const T* from = a.x.row<const T>(row, a.heads, a.cols);
  ROSE_UNROLL()
  for (int g = 0; g < Team::groups; ++g) {
    const std::int64_t col = first + g * step;
    x[g] = load_group<true>(from + col, cols - col);
  }
  // Add the residual stream, and write it back.
  if (a.residual.data != nullptr) {
    const T* other = a.residual.row<const T>(row, a.heads, a.cols);
    T* sum = a.sum.row<T>(row, a.heads, a.cols);
    Group<T> r[Team::groups];
    ROSE_UNROLL()
    for (int g = 0; g < Team::groups; ++g) {
      const std::int64_t col = first + g * step;
      r[g] = load_group<true>(other + col, cols - col);
    }
    ROSE_UNROLL()
    for (int g = 0; g < Team::groups; ++g) {
      const std::int64_t col = first + g * step;
      x[g] = add_groups(x[g], r[g]);
      store_group<true>(sum + col, x[g], cols - col);
    }
  }
  // Sum in the row's order.
  const auto count = static_cast<float>(a.cols);
  float mean = 0.0f;
  if constexpr (kCentre) {
    float slot[Team::used] = {};
    ROSE_UNROLL()
    for (int g = 0; g < Team::groups; ++g) {
      ROSE_UNROLL()
      for (int e = 0; e < group_size; ++e) slot[g % Team::slots] += to_float(x[g].at[e]);
    }
    mean = fold_slots<Team>(slot, shared[0]) / count;
  }
  float squares[Team::used] = {};
  ROSE_UNROLL()
  for (int g = 0; g < Team::groups; ++g) {
    if (kCentre && first + g * step >= cols) continue;
    ROSE_UNROLL()
    for (int e = 0; e < group_size; ++e) {
      const float d = to_float(x[g].at[e]) - mean;
      squares[g % Team::slots] = fmaf(d, d, squares[g % Team::slots]);
    }
  }
  const float inv = 1.0f / sqrtf(fold_slots<Team>(squares, shared[1]) / count + a.eps);
  if (first == 0 && cols > 0) {
    if (a.inv != nullptr) a.inv[row] = inv;
    if (kCentre && a.mean != nullptr) a.mean[row] = mean;
  }
  T* to = a.y.row<T>(row, a.heads, a.cols);
  ROSE_UNROLL()
  for (int g = 0; g < Team::groups; ++g) {
    const std::int64_t col = first + g * step;
    float weight[group_size], bias[group_size];
    a.weight.load<true>(col, cols - col, weight);
    if constexpr (kCentre) a.bias.load<true>(col, cols - col, bias);
    ROSE_UNROLL()
    for (int e = 0; e < group_size; ++e)
      x[g].at[e] =
          finish<T, kCentre>(to_float(x[g].at[e]), mean, inv, weight[e], kCentre ? bias[e] : 0.0f);
    store_group<true>(to + col, x[g], cols - col);
  }
}

// Or loop over the row, once for each thing to know.
template <class T, bool kWide, bool kCentre>
__global__ void __launch_bounds__(numerics::row_slots) long_norm_kernel(DeviceNorm a) {
  __shared__ float shared[2][numerics::row_slots];
  const std::int64_t row = blockIdx.x, cols = a.cols;
  const std::int64_t first = static_cast<std::int64_t>(threadIdx.x) * group_size;
  constexpr std::int64_t step = std::int64_t{numerics::row_slots} * group_size;
  const auto count = static_cast<float>(cols);
  const T* from = a.x.row<const T>(row, a.heads, cols);
  if (a.residual.data != nullptr) {
    const T* other = a.residual.row<const T>(row, a.heads, cols);
    T* sum = a.sum.row<T>(row, a.heads, cols);
    for (std::int64_t col = first; col < cols; col += step) {
      const auto x = load_group<kWide>(from + col, cols - col);
      store_group<kWide>(sum + col, add_groups(x, load_group<kWide>(other + col, cols - col)),
                         cols - col);
    }
    from = sum;
  }
  float mean = 0.0f, total = 0.0f;
  if constexpr (kCentre) {
    for (std::int64_t col = first; col < cols; col += step) {
      const Group<T> x = load_group<kWide>(from + col, cols - col);
      ROSE_UNROLL()
      for (int e = 0; e < group_size; ++e) total += to_float(x.at[e]);
    }
    mean = fold_threads<numerics::row_slots>(total, shared[0], Plus{}) / count;
    total = 0.0f;
  }
  for (std::int64_t col = first; col < cols; col += step) {
    const Group<T> x = load_group<kWide>(from + col, cols - col);
    ROSE_UNROLL()
    for (int e = 0; e < group_size; ++e) {
      const float d = to_float(x.at[e]) - mean;
      if (!kCentre || col + e < cols) total = fmaf(d, d, total);
    }
  }
  const float inv =
      1.0f / sqrtf(fold_threads<numerics::row_slots>(total, shared[1], Plus{}) / count + a.eps);
  if (threadIdx.x == 0) {
    if (a.inv != nullptr) a.inv[row] = inv;
    if (kCentre && a.mean != nullptr) a.mean[row] = mean;
  }
  T* to = a.y.row<T>(row, a.heads, cols);
  for (std::int64_t col = first; col < cols; col += step) {
    Group<T> x = load_group<kWide>(from + col, cols - col);
    float weight[group_size], bias[group_size] = {};
    a.weight.load<kWide>(col, cols - col, weight);
    if constexpr (kCentre) a.bias.load<kWide>(col, cols - col, bias);
    ROSE_UNROLL()
    for (int e = 0; e < group_size; ++e)
      x.at[e] = finish<T, kCentre>(to_float(x.at[e]), mean, inv, weight[e], bias[e]);
    store_group<kWide>(to + col, x, cols - col);
  }
}

}  // namespace

// Choose the kernel by type, width and access.
void launch_norm(const NormArguments& n, Stream stream) {
  const DeviceNorm a{head_rows(n.x),
                     head_rows(n.residual),
                     head_rows(n.sum),
                     head_rows(n.y),
                     parameters(n.weight),
                     parameters(n.bias),
                     n.eps,
                     n.mean,
                     n.inv,
                     n.x.rows * n.heads,
                     n.weight.cols,
                     static_cast<unsigned>(n.heads)};
  const bool wide =
      all_wide(n.x, n.residual, n.sum, n.y, n.weight, n.bias) && n.weight.cols % group_size == 0;
  const auto launch = [&]<class T, bool kCentre>(T*, std::bool_constant<kCentre>) {
    if (wide && a.cols <= longest_held_row) {
      with_team(a.cols, [&]<class Team>(Team) {
        const auto blocks = static_cast<unsigned>(ceil_div(a.rows, Team::rows));
        norm_kernel<T, Team, kCentre><<<blocks, Team::block, 0, to_cuda(stream)>>>(a);
      });
    } else if (wide) {
      long_norm_kernel<T, true, kCentre>
          <<<static_cast<unsigned>(a.rows), numerics::row_slots, 0, to_cuda(stream)>>>(a);
    } else {
      long_norm_kernel<T, false, kCentre>
          <<<static_cast<unsigned>(a.rows), numerics::row_slots, 0, to_cuda(stream)>>>(a);
    }
    ROSE_LAUNCH_CHECK("norm");
  };
  with_activation(n.x.dtype, [&]<class T>(T* type) {
    n.centre ? launch(type, std::true_type{}) : launch(type, std::false_type{});
  });
}

}  // namespace rose::kernels::gpu
