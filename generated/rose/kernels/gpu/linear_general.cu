// Compute 64 by 64 outputs in a block, for any shape and alignment.

#include "rose/kernels/gpu/elementwise.h"
#include "rose/kernels/gpu/linear.cuh"

namespace rose::kernels::gpu::linear_paths {

namespace {

constexpr int tile = 64;      // rows, columns and terms of a block's step
constexpr int threads = 128;  // four warps, each 32 by 32
constexpr int stages = 3;
constexpr int pitch = tile + 8;  // elements between rows in shared memory
constexpr int tile_bytes = tile * pitch * 2;

struct Operands {
  const void* x;
  const void* w;
  void* y;
  std::int64_t x_stride, w_stride, y_stride;
  int m, n, k;
  Epilogue epilogue;
};

/// Brings rows [row, row + 64) and terms [k, k + 64) into shared memory, zeros beyond the edges.
template <class In, bool Aligned>
__device__ __forceinline__ void load_tile(In* to, const In* from, std::int64_t stride, int row,
                                          int rows, int k, int terms) {
  if constexpr (Aligned) {
    constexpr int chunk = 8, chunks = tile / chunk;
#pragma unroll
    for (int i = threadIdx.x; i < tile * chunks; i += threads) {
      const int r = i / chunks, c = i % chunks * chunk;
      const int bytes = row + r < rows ? min(16, max(0, 2 * (terms - k - c))) : 0;
      const In* source = bytes > 0 ? from + (row + r) * stride + k + c : from;
      copy_async_16(shared_address(to + r * pitch + c), source, bytes);
    }
  } else {
#pragma unroll 4
    for (int i = threadIdx.x; i < tile * tile; i += threads) {
      const int r = i / tile, c = i % tile;
      const bool inside = row + r < rows && k + c < terms;
      to[r * pitch + c] = inside ? from[(row + r) * stride + k + c] : from_float<In>(0.0f);
    }
  }
}

// Multiply what a stage holds.
struct Tiles {
  float sum[2][4][4] = {};
};

template <class In>
__device__ __forceinline__ void multiply_stage(Tiles& tiles, const In* x, const In* w, int warp_row,
                                               int warp_column, int lane) {
#pragma unroll
  for (int k = 0; k < tile; k += 16) {
    std::uint32_t a[2][4], b[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = warp_row + 16 * i + lane % 16;
      ldmatrix_x4(a[i], shared_address(x + row * pitch + k + lane / 16 * 8));
      const int column = warp_column + 16 * i + lane / 16 * 8 + lane % 8;
      ldmatrix_x4(b[i], shared_address(w + column * pitch + k + lane / 8 % 2 * 8));
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        mma_16x8x16<In>(tiles.sum[i][j], a[i], b[j / 2][2 * (j % 2)], b[j / 2][2 * (j % 2) + 1]);
      }
    }
  }
}

// Walk along K, then complete and store.
template <class In, class Out, bool Aligned>
__global__ void __launch_bounds__(threads) general_kernel(const Operands o) {
  extern __shared__ __align__(128) unsigned char memory[];
  In* const x_tiles = reinterpret_cast<In*>(memory);
  In* const w_tiles = x_tiles + stages * tile * pitch;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = blockIdx.y * tile, column = blockIdx.x * tile;
  const int steps = (o.k + tile - 1) / tile;
  const auto load = [&](int step) {
    if (step < steps) {
      const int at = step % stages * tile * pitch;
      load_tile<In, Aligned>(x_tiles + at, static_cast<const In*>(o.x), o.x_stride, row, o.m,
                             step * tile, o.k);
      load_tile<In, Aligned>(w_tiles + at, static_cast<const In*>(o.w), o.w_stride, column, o.n,
                             step * tile, o.k);
    }
    copy_async_commit();
  };
  for (int step = 0; step < stages - 1; ++step) load(step);
  Tiles tiles;
  const int warp_row = warp / 2 * 32, warp_column = warp % 2 * 32;
  for (int step = 0; step < steps; ++step) {
    copy_async_wait<stages - 2>();
    __syncthreads();
    load(step + stages - 1);
    const int at = step % stages * tile * pitch;
    multiply_stage<In>(tiles, x_tiles + at, w_tiles + at, warp_row, warp_column, lane);
  }
  copy_async_wait<0>();
  __syncthreads();  // the stages are free: the sums pass through them, so that stores are coalesced
  float* const sums = reinterpret_cast<float*>(memory);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int r = warp_row + 16 * i + lane / 4 + e / 2 * 8;
        sums[r * tile + warp_column + 8 * j + lane % 4 * 2 + e % 2] = tiles.sum[i][j][e];
      }
    }
  }
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < tile * tile; i += threads) {
    const int r = row + i / tile, c = column + i % tile;
    if (r < o.m && c < o.n) {
      static_cast<Out*>(o.y)[r * o.y_stride + c] =
          from_float<Out>(complete<In, Out>(o.epilogue, sums[i], r, c));
    }
  }
}

// Complete a product that lies in memory.
struct Finish {
  const void* product;
  void* y;
  std::int64_t product_stride, y_stride, rows, columns;
  Epilogue epilogue;
};

template <class In, class Out>
__global__ void __launch_bounds__(256) finish_kernel(const Finish f) {
  const std::int64_t count = f.rows * f.columns;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    const std::int64_t row = i / f.columns, column = i % f.columns;
    const Out* product = static_cast<const Out*>(f.product) + row * f.product_stride + column;
    float v;
    if (f.epilogue.activation == Activation::swiglu) {
      v = complete_swiglu<In, Out>(f.epilogue, to_float(product[0]), to_float(product[f.columns]),
                                   row, column, f.columns);
    } else {
      v = complete<In, Out>(f.epilogue, to_float(product[0]), row, column);
    }
    static_cast<Out*>(f.y)[row * f.y_stride + column] = from_float<Out>(v);
  }
}

/// Calls f with values of the types that the shape names.
template <class F>
void with_types(const LinearShape& shape, F&& f) {
  const bool wide = shape.out == DType::f32;
  if (shape.in == DType::f32) return f(float{}, float{});
  if (shape.in == DType::bf16)
    return wide ? f(__nv_bfloat16{}, float{}) : f(__nv_bfloat16{}, __nv_bfloat16{});
  return wide ? f(__half{}, float{}) : f(__half{}, __half{});
}

}  // namespace

void finish(const LinearShape& shape, const Matrix& product, const LinearArguments& a,
            bool bias_too, Stream stream) {
  const bool plain = !(shape.bias && bias_too) && !shape.scaled && !shape.residual;
  if (plain && shape.activation == Activation::swiglu && shape.in == DType::bf16 &&
      shape.out == shape.in) {  // an operation that there is already, eight numbers at a time
    Matrix gate = product, up = product;
    gate.cols = up.cols = shape.n;
    gate.stride = up.stride = product.row_stride();
    up.data = static_cast<__nv_bfloat16*>(product.data) + shape.n;
    return silu_multiply(gate, up, a.y, stream);
  }
  const Finish f{product.data, a.y.data, product.row_stride(),           a.y.row_stride(),
                 shape.m,      shape.n,  epilogue_of(shape, a, bias_too)};
  constexpr std::int64_t block = 256, most = 132 * 16;
  const auto blocks = static_cast<unsigned>(std::min(most, ceil_div(shape.m * shape.n, block)));
  with_types(shape, [&](auto in, auto out) {
    finish_kernel<decltype(in), decltype(out)><<<blocks, block, 0, to_cuda(stream)>>>(f);
  });
  ROSE_LAUNCH_CHECK("finish");
}

void run_general(const LinearPlan& plan, const LinearArguments& a, Workspace workspace,
                 Stream stream) {
  LinearShape shape = plan.shape;
  LinearArguments to = a;
  const bool later = shape.activation == Activation::swiglu;
  if (later) {  // the product and its bias first
    shape = {.m = shape.m,
             .n = 2 * shape.n,
             .k = shape.k,
             .in = shape.in,
             .out = shape.out,
             .bias = shape.bias,
             .aligned = shape.aligned};
    to.y = {.data = workspace.data, .dtype = shape.out, .rows = shape.m, .cols = shape.n};
  }
  const Operands o{a.x.data,
                   a.w.data,
                   to.y.data,
                   a.x.row_stride(),
                   a.w.row_stride(),
                   to.y.row_stride(),
                   static_cast<int>(shape.m),
                   static_cast<int>(shape.n),
                   static_cast<int>(shape.k),
                   epilogue_of(shape, to)};
  const dim3 grid(static_cast<unsigned>(ceil_div(shape.n, tile)),
                  static_cast<unsigned>(ceil_div(shape.m, tile)));
  const std::size_t bytes = 2 * stages * tile_bytes;
  with_types(shape, [&](auto in, auto out) {
    using In = decltype(in);
    if constexpr (sizeof(In) == 2) {
      const auto kernel = shape.aligned ? general_kernel<In, decltype(out), true>
                                        : general_kernel<In, decltype(out), false>;
      allow_shared_memory(kernel, bytes);
      kernel<<<grid, threads, bytes, to_cuda(stream)>>>(o);
    }
  });
  ROSE_LAUNCH_CHECK("linear, general");
  if (later) finish(plan.shape, to.y, a, false, stream);
}

}  // namespace rose::kernels::gpu::linear_paths
