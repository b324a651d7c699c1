// Multiply in fp32, one ascending chain of fma for each output.

#include "rose/kernels/gpu/linear.cuh"

namespace rose::kernels::gpu::linear_paths {

namespace {

constexpr int threads = 256;
constexpr int terms = 16;  // K of one step

struct Operands {
  const float* x;
  const float* w;
  float* y;
  std::int64_t x_stride, w_stride, y_stride;
  int m, n, k;
  Epilogue epilogue;
};

/// Fetches `Rows` rows of `terms` values into registers, zeros beyond the edges, and stores them transposed.
template <int Rows, bool Aligned>
struct Panel {
  static constexpr int pitch = Rows + 4;
  static constexpr int each = Rows * terms / threads;  // values per thread
  float held[each];

  __device__ __forceinline__ void fetch(const float* from, std::int64_t stride, int row, int rows,
                                        int k, int end) {
    if constexpr (Aligned && each % 4 == 0) {
#pragma unroll
      for (int i = 0; i < each / 4; ++i) {
        const int at = threadIdx.x + i * threads, r = at / (terms / 4), c = at % (terms / 4) * 4;
        float4 value = make_float4(0, 0, 0, 0);
        if (row + r < rows && k + c < end)
          value = *reinterpret_cast<const float4*>(from + (row + r) * stride + k + c);
        held[4 * i] = value.x;
        held[4 * i + 1] = value.y;
        held[4 * i + 2] = value.z;
        held[4 * i + 3] = value.w;
      }
    } else {
#pragma unroll
      for (int i = 0; i < each; ++i) {
        const int at = threadIdx.x + i * threads, r = at / terms, c = at % terms;
        held[i] = row + r < rows && k + c < end ? from[(row + r) * stride + k + c] : 0.0f;
      }
    }
  }

  __device__ __forceinline__ void put(float* to) const {
    if constexpr (Aligned && each % 4 == 0) {
#pragma unroll
      for (int i = 0; i < each; ++i) {
        const int at = threadIdx.x + i / 4 * threads, r = at / (terms / 4),
                  c = at % (terms / 4) * 4 + i % 4;
        to[c * pitch + r] = held[i];
      }
    } else {
#pragma unroll
      for (int i = 0; i < each; ++i) {
        const int at = threadIdx.x + i * threads, r = at / terms, c = at % terms;
        to[c * pitch + r] = held[i];
      }
    }
  }
};

// Keep a square of outputs in each thread.

/// `Square` by `Square` outputs per thread, in quads of columns and rows that lie apart, so that shared memory is read by 16 bytes.
template <int Tile, int Square, bool Aligned>
__global__ void __launch_bounds__(threads, 2) f32_kernel(const Operands o) {
  static_assert(Tile / Square * (Tile / Square) == threads);
  using Side = Panel<Tile, Aligned>;
  __shared__ __align__(16) float x_panel[2][terms * Side::pitch];
  __shared__ __align__(16) float w_panel[2][terms * Side::pitch];
  constexpr int side = Tile / Square, quad = Square < 4 ? Square : 4, quads = Square / quad;
  const int row = blockIdx.y * Tile, column = blockIdx.x * Tile;
  const int my_row = threadIdx.x / side * quad, my_column = threadIdx.x % side * quad;
  float sum[Square][Square] = {};
  Side x, w;
  x.fetch(o.x, o.x_stride, row, o.m, 0, o.k);
  w.fetch(o.w, o.w_stride, column, o.n, 0, o.k);
  x.put(x_panel[0]);
  w.put(w_panel[0]);
  int current = 0;
  for (int k = 0; k < o.k; k += terms) {
    __syncthreads();
    const bool more = k + terms < o.k;
    if (more) {
      x.fetch(o.x, o.x_stride, row, o.m, k + terms, o.k);
      w.fetch(o.w, o.w_stride, column, o.n, k + terms, o.k);
    }
#pragma unroll
    for (int t = 0; t < terms; ++t) {
      float a[Square], b[Square];
#pragma unroll
      for (int i = 0; i < Square; ++i) {
        a[i] = x_panel[current][t * Side::pitch + my_row + i / quad * side * quad + i % quad];
        b[i] = w_panel[current][t * Side::pitch + my_column + i / quad * side * quad + i % quad];
      }
#pragma unroll
      for (int i = 0; i < Square; ++i) {
#pragma unroll
        for (int j = 0; j < Square; ++j) sum[i][j] = __fmaf_rn(a[i], b[j], sum[i][j]);
      }
    }
    if (more) {
      x.put(x_panel[current ^ 1]);
      w.put(w_panel[current ^ 1]);
    }
    current ^= 1;
  }
  static_assert(quads * quad == Square);
#pragma unroll
  for (int i = 0; i < Square; ++i) {
#pragma unroll
    for (int j = 0; j < Square; ++j) {
      const int r = row + my_row + i / quad * side * quad + i % quad;
      const int c = column + my_column + j / quad * side * quad + j % quad;
      if (r < o.m && c < o.n)
        o.y[r * o.y_stride + c] = complete<float, float>(o.epilogue, sum[i][j], r, c);
    }
  }
}

template <int Tile, int Square>
void launch(const Operands& o, bool aligned, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(ceil_div(o.n, Tile)),
                  static_cast<unsigned>(ceil_div(o.m, Tile)));
  const auto kernel = aligned ? f32_kernel<Tile, Square, true> : f32_kernel<Tile, Square, false>;
  kernel<<<grid, threads, 0, stream>>>(o);
  ROSE_LAUNCH_CHECK("linear, fp32");
}

}  // namespace

void run_f32(const LinearPlan& plan, const LinearArguments& a, Workspace workspace, Stream stream) {
  LinearShape shape = plan.shape;
  LinearArguments to = a;
  const bool later = shape.activation == Activation::swiglu;
  if (later) {
    shape.n *= 2;
    shape.activation = Activation::none;
    shape.scaled = shape.residual = false;
    to.y = {.data = workspace.data, .dtype = DType::f32, .rows = shape.m, .cols = shape.n};
  }
  const Operands o{static_cast<const float*>(a.x.data),
                   static_cast<const float*>(a.w.data),
                   static_cast<float*>(to.y.data),
                   a.x.row_stride(),
                   a.w.row_stride(),
                   to.y.row_stride(),
                   static_cast<int>(shape.m),
                   static_cast<int>(shape.n),
                   static_cast<int>(shape.k),
                   epilogue_of(shape, to)};
  constexpr std::int64_t enough =
      132 * 128 * 128;  // outputs that occupy every multiprocessor with large tiles
  const bool aligned = shape.aligned && shape.k % 4 == 0;
  if (shape.m >= 64 && shape.m * shape.n >= enough) {
    launch<128, 8>(o, aligned, to_cuda(stream));
  } else {
    launch<32, 2>(o, aligned, to_cuda(stream));
  }
  if (later) finish(plan.shape, to.y, a, false, stream);
}

}  // namespace rose::kernels::gpu::linear_paths
