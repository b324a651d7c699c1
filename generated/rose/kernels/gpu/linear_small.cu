// Multiply few rows by narrow column tiles, weights read once.

#include <algorithm>

#include "rose/kernels/gpu/hopper.cuh"
#include "rose/kernels/gpu/linear.cuh"

namespace rose::kernels::gpu::linear_paths {

namespace {

constexpr int terms = 64;  // of a subtile: 128 bytes of a row
constexpr int row_bytes = 2 * terms;
constexpr int most_stages = 16;
constexpr int barrier_bytes = 1024;  // the stages behind them begin at a multiple of 1,024 bytes

struct Operands {
  CUtensorMap x_map, w_map;
  void* y;
  std::int64_t y_stride;
  int m, n, k;
  int x_rows;    // of a block's tile: 16, 32, 64 or 128
  int subtiles;  // of a stage
  int stages;
  bool wide;  // y is fp32
  Epilogue epilogue;
};

/// A place in the ring of stages, and the parity of its phase.
struct Ring {
  int stages, stage = 0;
  std::uint32_t parity = 0;
  __device__ explicit Ring(int count) : stages(count) {}
  __device__ void advance() {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

struct Places {
  std::uint32_t full, empty, memory;
  int x_bytes, w_bytes, stage_bytes;  // of a subtile of x, of w; of a stage

  __device__ Places(const Operands& o, std::uint32_t shared, int w_rows)
      : full(shared),
        empty(shared + 8 * most_stages),
        memory(shared + barrier_bytes),
        x_bytes(o.x_rows * row_bytes),
        w_bytes(w_rows * row_bytes),
        stage_bytes(o.subtiles * (x_bytes + w_bytes)) {}
  __device__ std::uint32_t x_at(int stage, int subtile) const {
    return memory + stage * stage_bytes + subtile * x_bytes;
  }
  __device__ std::uint32_t w_at(const Operands& o, int stage, int subtile) const {
    return memory + stage * stage_bytes + o.subtiles * x_bytes + subtile * w_bytes;
  }
};

// The thread that copies.

/// `multiplying` warps of each block of the cluster will release a stage.
__device__ __forceinline__ void start_barriers(const Operands& o, const Places& at,
                                               int multiplying) {
  if (threadIdx.x == 0) {
    for (int s = 0; s < o.stages; ++s) {
      hopper::barrier_init(at.full + 8 * s, 1);
      hopper::barrier_init(at.empty + 8 * s, multiplying * hopper::cluster_size());
    }
    hopper::barrier_init_fence();
  }
  __syncwarp();  // what follows is for whole warps
  hopper::cluster_sync(hopper::cluster_size());
}

template <int Columns, int Halves>
__device__ __forceinline__ void copy_stages(const Operands& o, const Places& at, int row,
                                            int column) {
  const int blocks = hopper::cluster_size(), rank = hopper::cluster_rank();
  const auto everyone = static_cast<std::uint16_t>((1 << blocks) - 1);
  const int share = o.x_rows / blocks;  // rows of x that this block fetches for all
  // Boxes begin inside their matrix: rows and columns beyond it are copied from elsewhere, multiplied, and never stored.
  const int x_row = min(row + rank * share, o.m - 1), w_row = min(column, o.n - 1);
  Ring ring(o.stages);
  for (int k = 0; k < o.k; k += o.subtiles * terms) {
    const int subtiles = min(o.subtiles, (o.k - k + terms - 1) / terms);
    const std::uint32_t ready = at.full + 8 * ring.stage;
    hopper::barrier_wait(at.empty + 8 * ring.stage, ring.parity ^ 1);
    hopper::barrier_arrive_expecting(ready, subtiles * (at.x_bytes + at.w_bytes));
    for (int s = 0; s < subtiles; ++s) {
      const int term = k + s * terms;
#pragma unroll
      for (int h = 0; h < Halves; ++h) {
        hopper::copy_box(at.w_at(o, ring.stage, s) + h * Columns * row_bytes, &o.w_map, term,
                         w_row + h * o.n, ready);
      }
      const std::uint32_t x_to = at.x_at(ring.stage, s) + rank * share * row_bytes;
      if (blocks > 1) {
        hopper::copy_box_to(everyone, x_to, &o.x_map, term, x_row, ready);
      } else {
        hopper::copy_box(x_to, &o.x_map, term, x_row, ready);
      }
    }
    ring.advance();
  }
}

// The warps that multiply.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
template <int Columns, int Halves>
__device__ __forceinline__ void multiply_stages(float (&sum)[Halves][Columns / 2],
                                                const Operands& o, const Places& at, int group,
                                                int lane) {
  const int blocks = hopper::cluster_size(), stage_terms = o.subtiles * terms;
  Ring ring(o.stages);
  int previous = 0;
  const auto release = [&](int stage) {
    if (lane < blocks) hopper::barrier_arrive_at(at.empty + 8 * stage, lane);
  };
  for (int k = 0; k < o.k; k += stage_terms) {
    const int subtiles = min(o.subtiles, (o.k - k + terms - 1) / terms);
    hopper::barrier_wait(at.full + 8 * ring.stage, ring.parity);
    for (int s = 0; s < subtiles; ++s) {
      hopper::product_fence();
      const std::uint64_t a =
          hopper::swizzled_tile(at.x_at(ring.stage, s) + group * 64 * row_bytes);
      const std::uint64_t b = hopper::swizzled_tile(at.w_at(o, ring.stage, s));
#pragma unroll
      for (int step = 0; step < terms / 16; ++step) {
#pragma unroll
        for (int h = 0; h < Halves; ++h) {
          constexpr int step_bytes = 32, unit = 16;
          hopper::product(sum[h], a + step * step_bytes / unit,
                          b + (h * Columns * row_bytes + step * step_bytes) / unit);
        }
      }
    }
    hopper::product_commit();
    hopper::product_wait<1>();
    const bool filled_again = k + (o.stages - 1) * stage_terms < o.k;
    if (k > 0 && filled_again) release(previous);
    previous = ring.stage;
    ring.advance();
  }
  hopper::product_wait<0>();
}
#endif

template <class Out, int Columns, int Halves>
__device__ __forceinline__ void store_sums(const float (&sum)[Halves][Columns / 2],
                                           const Operands& o, int row, int column, int lane) {
#pragma unroll
  for (int i = 0; i < Columns / 2; ++i) {
    const int r = row + lane / 4 + i / 2 % 2 * 8, c = column + i / 4 * 8 + lane % 4 * 2 + i % 2;
    if (r >= o.m || c >= o.n) continue;
    float v;
    if constexpr (Halves == 2) {
      v = complete_swiglu<__nv_bfloat16, Out>(o.epilogue, sum[0][i], sum[1][i], r, c, o.n);
    } else {
      v = complete<__nv_bfloat16, Out>(o.epilogue, sum[0][i], r, c);
    }
    static_cast<Out*>(o.y)[r * o.y_stride + c] = from_float<Out>(v);
  }
}

// One warp copies, the others multiply.

/// Groups: of four warps, each 64 rows.
template <int Columns, int Halves, int Groups>
__global__ void __launch_bounds__(128 * Groups + 32)
    small_kernel(const __grid_constant__ Operands o) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared[];
  const Places at(o, shared_address(shared), Columns * Halves);
  const int lane = threadIdx.x % 32;
  const int warp =
      __shfl_sync(full_warp, threadIdx.x / 32, 0);  // the compiler sees that a warp stays together
  const int row = blockIdx.y * o.x_rows, column = blockIdx.x * Columns;
  constexpr int multiplying = 4 * Groups;
  if (threadIdx.x == 32 * multiplying) {
    hopper::prefetch_map(&o.w_map);
    hopper::prefetch_map(&o.x_map);
  }
  start_barriers(o, at, multiplying);
  if (warp == multiplying) {
    if (lane == 0) copy_stages<Columns, Halves>(o, at, row, column);
  } else {
    const int group = warp / 4;
    float sum[Halves][Columns / 2] = {};
    multiply_stages<Columns, Halves>(sum, o, at, group, lane);
    const int first = row + 64 * group + warp % 4 * 16;
    if (warp % 4 * 16 < o.x_rows) {  // else the sums are of rows that are not there
      if (o.wide) {
        store_sums<float, Columns, Halves>(sum, o, first, column, lane);
      } else {
        store_sums<__nv_bfloat16, Columns, Halves>(sum, o, first, column, lane);
      }
    }
  }
  __syncwarp();
  hopper::cluster_sync(hopper::cluster_size());  // this block's copies are still on their way
#endif
}

// Describe the boxes.
CUtensorMap describe(const Matrix& matrix, int box_rows) {
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(matrix.cols),
                               static_cast<cuuint64_t>(matrix.rows)};
  const cuuint64_t row_stride[1] = {
      static_cast<cuuint64_t>(matrix.rows > 1 ? matrix.row_stride() : matrix.cols) * 2};
  const cuuint32_t box[2] = {terms, static_cast<cuuint32_t>(box_rows)};
  return hopper::tensor_map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, matrix.data, sizes, row_stride, box);
}

// Launch with clusters and as many stages as fit.

/// `slack` rows behind the last stage may be read, and are not used.
template <class Kernel>
void launch(Operands o, const SmallVariant& variant, const LinearArguments& a, Kernel* kernel,
            int columns, int halves, int threads, int slack, cudaStream_t stream) {
  constexpr int all = 227 * 1024, half = 113 * 1024, deep = 4;
  const int room = (variant.half ? half : all) - barrier_bytes - slack * row_bytes;
  const int subtile_bytes = (o.x_rows + columns * halves) * row_bytes;
  o.subtiles = 4;
  while (o.subtiles > 1 && deep * o.subtiles * subtile_bytes > room) o.subtiles /= 2;
  o.stages = std::clamp(room / (o.subtiles * subtile_bytes), 2, most_stages);
  const int bytes = barrier_bytes + o.stages * o.subtiles * subtile_bytes + slack * row_bytes;
  const int cluster_blocks = std::min(variant.cluster, o.x_rows / 8);
  o.x_map = describe(a.x, o.x_rows / cluster_blocks);
  o.w_map = describe(a.w, columns);
  allow_shared_memory(kernel, static_cast<std::size_t>(bytes));
  const std::int64_t blocks = ceil_div(ceil_div(o.n, columns), cluster_blocks) * cluster_blocks;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(cluster_blocks), 1, 1};
  cudaLaunchConfig_t configuration{};
  configuration.gridDim =
      dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(ceil_div(o.m, o.x_rows)));
  configuration.blockDim = dim3(static_cast<unsigned>(threads));
  configuration.dynamicSmemBytes = static_cast<std::size_t>(bytes);
  configuration.stream = stream;
  configuration.attrs = &cluster;
  configuration.numAttrs = cluster_blocks > 1 ? 1 : 0;
  ROSE_CUDA_CHECK(cudaLaunchKernelEx(&configuration, kernel, o));
}

template <int Columns, int Halves>
void launch_groups(const Operands& o, const SmallVariant& variant, const LinearArguments& a,
                   cudaStream_t stream) {
  constexpr int copying = 32, group = 128, group_rows = 64;
  if (o.x_rows > group_rows) {
    return launch(o, variant, a, small_kernel<Columns, Halves, 2>, Columns, Halves,
                  2 * group + copying, 0, stream);
  }
  launch(o, variant, a, small_kernel<Columns, Halves, 1>, Columns, Halves, group + copying,
         group_rows - o.x_rows, stream);
}

template <int Halves>
void launch_halves(const Operands& o, const SmallVariant& variant, const LinearArguments& a,
                   cudaStream_t stream) {
  switch (variant.column_tiles) {
    case 1: return launch_groups<8, Halves>(o, variant, a, stream);
    case 2: return launch_groups<16, Halves>(o, variant, a, stream);
    case 4: return launch_groups<32, Halves>(o, variant, a, stream);
    default: return launch_groups<64, Halves>(o, variant, a, stream);
  }
}

}  // namespace

// The kernel for single rows is beside that of one token.

bool small_fits(const LinearShape& shape) {
  return shape.in == DType::bf16 && shape.aligned && shape.k > 0 && shape.k % 8 == 0 &&
         hopper::present();
}

void run_small(const LinearPlan& plan, const LinearArguments& a, Stream stream) {
  const LinearShape& shape = plan.shape;
  Operands o{};
  o.y = a.y.data;
  o.y_stride = a.y.row_stride();
  o.m = static_cast<int>(shape.m);
  o.n = static_cast<int>(shape.n);
  o.k = static_cast<int>(shape.k);
  o.wide = shape.out == DType::f32;
  o.epilogue = epilogue_of(shape, a);
  const SmallVariant variant = small_variant(plan.variant);
  o.x_rows = o.m <= 16 ? 16 : o.m <= 32 ? 32 : o.m <= 64 ? 64 : 128;
  if (shape.activation == Activation::swiglu)
    return launch_halves<2>(o, variant, a, to_cuda(stream));
  launch_halves<1>(o, variant, a, to_cuda(stream));
}

}  // namespace rose::kernels::gpu::linear_paths
