// Maximum, sum and result from registers.

#include "rose/kernels/gpu/rows.cuh"
#include "rose/kernels/gpu/softmax.h"

namespace rose::kernels::gpu {
namespace {

// A team holds the row.
__device__ __forceinline__ float weight_of(float x, float highest) {
  return exp2_approx((x - highest) * log2_e);
}

template <class T, class Team>
__global__ void __launch_bounds__(Team::block)
    softmax_kernel(const T* x, std::int64_t x_stride, T* y, std::int64_t y_stride,
                   std::int64_t rows, std::int64_t row_cols) {
  __shared__ float shared[2][Team::block];
  const std::int64_t row = std::int64_t{blockIdx.x} * Team::rows + threadIdx.x / Team::threads;
  const std::int64_t first = static_cast<std::int64_t>(threadIdx.x % Team::threads) * group_size;
  constexpr std::int64_t step = std::int64_t{Team::threads} * group_size;
  const std::int64_t cols = row < rows ? row_cols : 0;
  Group<T> in[Team::groups];
  ROSE_UNROLL()
  for (int g = 0; g < Team::groups; ++g)
    in[g] = load_group<true>(x + row * x_stride + first + g * step, cols - first - g * step);
  float highest = -INFINITY;
  ROSE_UNROLL()
  for (int g = 0; g < Team::groups; ++g) {
    if (first + g * step >= cols) continue;
    ROSE_UNROLL()
    for (int e = 0; e < group_size; ++e) highest = fmaxf(highest, to_float(in[g].at[e]));
  }
  highest = fold_threads<Team::threads>(highest, shared[0], Larger{});
  float slot[Team::used] = {};
  ROSE_UNROLL()
  for (int g = 0; g < Team::groups; ++g) {
    if (first + g * step >= cols) continue;
    ROSE_UNROLL()
    for (int e = 0; e < group_size; ++e)
      slot[g % Team::slots] += weight_of(to_float(in[g].at[e]), highest);
  }
  const float inverse = 1.0f / fold_slots<Team>(slot, shared[1]);
  ROSE_UNROLL()
  for (int g = 0; g < Team::groups; ++g) {
    ROSE_UNROLL()
    for (int e = 0; e < group_size; ++e)
      in[g].at[e] = from_float<T>(weight_of(to_float(in[g].at[e]), highest) * inverse);
    store_group<true>(y + row * y_stride + first + g * step, in[g], cols - first - g * step);
  }
}

// Or the row is read three times.
template <class T, bool kWide>
__global__ void __launch_bounds__(numerics::row_slots)
    long_softmax_kernel(const T* x, std::int64_t x_stride, T* y, std::int64_t y_stride,
                        std::int64_t cols) {
  __shared__ float shared[2][numerics::row_slots];
  const T* in = x + blockIdx.x * x_stride;
  T* out = y + blockIdx.x * y_stride;
  const std::int64_t first = static_cast<std::int64_t>(threadIdx.x) * group_size;
  constexpr std::int64_t step = std::int64_t{numerics::row_slots} * group_size;
  float highest = -INFINITY, sum = 0.0f;
  for (std::int64_t col = first; col < cols; col += step) {
    const Group<T> group = load_group<kWide>(in + col, cols - col);
    ROSE_UNROLL()
    for (int e = 0; e < group_size; ++e) {
      if (col + e < cols) highest = fmaxf(highest, to_float(group.at[e]));
    }
  }
  highest = fold_threads<numerics::row_slots>(highest, shared[0], Larger{});
  for (std::int64_t col = first; col < cols; col += step) {
    const Group<T> group = load_group<kWide>(in + col, cols - col);
    ROSE_UNROLL()
    for (int e = 0; e < group_size; ++e) {
      if (col + e < cols) sum += weight_of(to_float(group.at[e]), highest);
    }
  }
  const float inverse = 1.0f / fold_threads<numerics::row_slots>(sum, shared[1], Plus{});
  for (std::int64_t col = first; col < cols; col += step) {
    Group<T> group = load_group<kWide>(in + col, cols - col);
    ROSE_UNROLL()
    for (int e = 0; e < group_size; ++e)
      group.at[e] = from_float<T>(weight_of(to_float(group.at[e]), highest) * inverse);
    store_group<kWide>(out + col, group, cols - col);
  }
}

// Or goes back, reading the row twice.
template <class T, bool kWide>
__global__ void __launch_bounds__(numerics::row_slots)
    softmax_backward_kernel(const T* y, std::int64_t y_stride, const T* dy, std::int64_t dy_stride,
                            T* dx, std::int64_t dx_stride, std::int64_t cols) {
  __shared__ float shared[numerics::row_slots];
  const T *p = y + blockIdx.x * y_stride, *g = dy + blockIdx.x * dy_stride;
  T* out = dx + blockIdx.x * dx_stride;
  const std::int64_t first = static_cast<std::int64_t>(threadIdx.x) * group_size;
  constexpr std::int64_t step = std::int64_t{numerics::row_slots} * group_size;
  float sum = 0.0f;
  for (std::int64_t col = first; col < cols; col += step) {
    const Group<T> probability = load_group<kWide>(p + col, cols - col),
                   slope = load_group<kWide>(g + col, cols - col);
    ROSE_UNROLL()
    for (int e = 0; e < group_size; ++e) {
      if (col + e < cols) sum = fmaf(to_float(probability.at[e]), to_float(slope.at[e]), sum);
    }
  }
  const float mean = fold_threads<numerics::row_slots>(sum, shared, Plus{});
  for (std::int64_t col = first; col < cols; col += step) {
    Group<T> probability = load_group<kWide>(p + col, cols - col);
    const Group<T> slope = load_group<kWide>(g + col, cols - col);
    ROSE_UNROLL()
    for (int e = 0; e < group_size; ++e) {
      probability.at[e] =
          from_float<T>(to_float(probability.at[e]) * (to_float(slope.at[e]) - mean));
    }
    store_group<kWide>(out + col, probability, cols - col);
  }
}

}  // namespace

// Choose by type, width and access.
void launch_softmax(const Matrix& x, const Matrix& y, Stream stream) {
  with_activation(x.dtype, [&]<class T>(T*) {
    const T* in = static_cast<const T*>(x.data);
    T* out = static_cast<T*>(y.data);
    const auto rows = static_cast<unsigned>(x.rows);
    if (!all_wide(x, y)) {
      long_softmax_kernel<T, false><<<rows, numerics::row_slots, 0, to_cuda(stream)>>>(
          in, x.row_stride(), out, y.row_stride(), x.cols);
    } else if (x.cols > longest_held_row) {
      long_softmax_kernel<T, true><<<rows, numerics::row_slots, 0, to_cuda(stream)>>>(
          in, x.row_stride(), out, y.row_stride(), x.cols);
    } else {
      with_team(x.cols, [&]<class Team>(Team) {
        const auto blocks = static_cast<unsigned>(ceil_div(x.rows, Team::rows));
        softmax_kernel<T, Team><<<blocks, Team::block, 0, to_cuda(stream)>>>(
            in, x.row_stride(), out, y.row_stride(), x.rows, x.cols);
      });
    }
    ROSE_LAUNCH_CHECK("softmax");
  });
}

// Launch the way back.
void launch_softmax_backward(const Matrix& y, const Matrix& dy, const Matrix& dx, Stream stream) {
  with_activation(y.dtype, [&]<class T>(T*) {
    const auto launch = [&](auto kernel) {
      kernel<<<static_cast<unsigned>(y.rows), numerics::row_slots, 0, to_cuda(stream)>>>(
          static_cast<const T*>(y.data), y.row_stride(), static_cast<const T*>(dy.data),
          dy.row_stride(), static_cast<T*>(dx.data), dx.row_stride(), y.cols);
    };
    all_wide(y, dy, dx) ? launch(softmax_backward_kernel<T, true>)
                        : launch(softmax_backward_kernel<T, false>);
    ROSE_LAUNCH_CHECK("softmax_backward");
  });
}

}  // namespace rose::kernels::gpu
