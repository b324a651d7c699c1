// Multiply few rows by narrow column tiles, weights read once.

#include <algorithm>

#include "rose/kernels/gpu/linear.cuh"

namespace rose::kernels::gpu::linear_paths {

namespace {

constexpr int stage_terms = 256;  // K of one stage
constexpr int group_terms = 64;   // K whose fragments are loaded together
constexpr int groups_per_stage = stage_terms / group_terms;
constexpr int steps = group_terms / 16;
constexpr int pitch =
    stage_terms * 2 + 16;  // bytes between rows: eight rows lie in different banks
constexpr int most_stages = 16;
constexpr int barrier_bytes = 2 * most_stages * 8;

struct Operands {
  const __nv_bfloat16* x;
  const __nv_bfloat16* w;
  void* y;
  std::int64_t x_stride, w_stride, y_stride;
  int m, n, k, stages;
  bool wide;  // y is fp32
  Epilogue epilogue;
};

// Barriers in shared memory, bulk copies and clusters.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

__device__ __forceinline__ void barrier_init(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_arrive_expecting(std::uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
/// Arrives at the same barrier of another block of the cluster.
__device__ __forceinline__ void barrier_arrive_at(std::uint32_t barrier, int block) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n"
      "}\n" ::"r"(barrier),
      "r"(block)
      : "memory");
}
__device__ __forceinline__ void barrier_wait(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n"
        ".reg .pred complete;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 complete, [%1], %2;\n"
        "selp.b32 %0, 1, 0, complete;\n"
        "}\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}
/// Copies to this block's shared memory, or with a mask to the same place in several blocks of the cluster.
__device__ __forceinline__ void bulk_copy(std::uint32_t to, const void* from, int bytes,
                                          std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void bulk_copy_to_all(std::uint32_t to, const void* from, int bytes,
                                                 std::uint32_t barrier, std::uint16_t mask) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1], %2, [%3], "
      "%4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "h"(mask)
      : "memory");
}
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}
__device__ __forceinline__ int cluster_size() {
  std::uint32_t size;
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(size));
  return static_cast<int>(size);
}
__device__ __forceinline__ int cluster_rank() {
  std::uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(rank));
  return static_cast<int>(rank);
}

// The warp that copies.
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

template <int RowTiles, int Columns, int Halves>
struct Stage {
  static constexpr int x_rows = 16 * RowTiles, w_rows = Columns * Halves;
  static constexpr int bytes = (x_rows + w_rows) * pitch;
};

template <int RowTiles, int Columns, int Halves>
__device__ __forceinline__ void copy_stages(const Operands& o, std::uint32_t memory,
                                            std::uint32_t full, std::uint32_t empty, int row,
                                            int column, int lane) {
  using Layout = Stage<RowTiles, Columns, Halves>;
  const int blocks = cluster_size(), rank = cluster_rank();
  const auto everyone = static_cast<std::uint16_t>((1 << blocks) - 1);
  const int rows = min(Layout::x_rows, o.m - row);
  const int columns = max(0, min(Columns, o.n - column));
  Ring ring(o.stages);
  for (int k = 0; k < o.k; k += stage_terms) {
    const int bytes = 2 * min(stage_terms, o.k - k);
    barrier_wait(empty + 8 * ring.stage, ring.parity ^ 1);
    const std::uint32_t ready = full + 8 * ring.stage;
    if (lane == 0) barrier_arrive_expecting(ready, bytes * (rows + columns * Halves));
    __syncwarp();
    const std::uint32_t x_at = memory + ring.stage * Layout::bytes,
                        w_at = x_at + Layout::x_rows * pitch;
    for (int r = lane; r < Columns * Halves; r += 32) {
      const int c = r % Columns;
      const std::int64_t weight_row = column + c + static_cast<std::int64_t>(r / Columns) * o.n;
      if (c < columns) bulk_copy(w_at + r * pitch, o.w + weight_row * o.w_stride + k, bytes, ready);
    }
    for (int r = rank + lane * blocks; r < rows; r += 32 * blocks) {
      const __nv_bfloat16* from = o.x + (row + r) * o.x_stride + k;
      if (blocks > 1) {
        bulk_copy_to_all(x_at + r * pitch, from, bytes, ready, everyone);
      } else {
        bulk_copy(x_at + r * pitch, from, bytes, ready);
      }
    }
    ring.advance();
  }
}

// The warps that multiply.
template <int Halves>
struct Fragments {
  std::uint32_t a[steps][4];
  std::uint32_t b[Halves][steps][2];
};

template <int Halves>
__device__ __forceinline__ void load_group(Fragments<Halves>& f, std::uint32_t a_at,
                                           std::uint32_t b_at, int half_bytes) {
#pragma unroll
  for (int s = 0; s < steps; ++s) ldmatrix_x4(f.a[s], a_at + 32 * s);
#pragma unroll
  for (int h = 0; h < Halves; ++h) {
#pragma unroll
    for (int s = 0; s < steps; s += 2) {
      std::uint32_t two[4];
      ldmatrix_x4(two, b_at + h * half_bytes + 32 * s);
      f.b[h][s][0] = two[0];
      f.b[h][s][1] = two[1];
      f.b[h][s + 1][0] = two[2];
      f.b[h][s + 1][1] = two[3];
    }
  }
}

template <int RowTiles, int Columns, int Halves>
__device__ __forceinline__ void multiply_stages(float (&sum)[Halves][4], const Operands& o,
                                                std::uint32_t memory, std::uint32_t full,
                                                std::uint32_t empty, int row_tile, int column_tile,
                                                int lane) {
  using Layout = Stage<RowTiles, Columns, Halves>;
  const int blocks = cluster_size(), groups = o.k / group_terms;
  const std::uint32_t a_lane = memory + (16 * row_tile + lane % 16) * pitch + lane / 16 * 16;
  const std::uint32_t b_lane =
      memory + (Layout::x_rows + 8 * column_tile + lane % 8) * pitch + lane / 8 * 16;
  Fragments<Halves> fragments[2];
  Ring loading(o.stages), freeing(o.stages);
  barrier_wait(full, 0);
  load_group<Halves>(fragments[0], a_lane, b_lane, Columns * pitch);
  const auto step = [&](int group, Fragments<Halves>& current, Fragments<Halves>& next) {
    const int following = group + 1;
    if (following < groups) {
      if (following % groups_per_stage == 0) {
        loading.advance();
        barrier_wait(full + 8 * loading.stage, loading.parity);
      }
      const std::uint32_t at =
          loading.stage * Layout::bytes + following % groups_per_stage * group_terms * 2;
      load_group<Halves>(next, a_lane + at, b_lane + at, Columns * pitch);
    }
#pragma unroll
    for (int s = 0; s < steps; ++s) {
#pragma unroll
      for (int h = 0; h < Halves; ++h) {
        mma_16x8x16<__nv_bfloat16>(sum[h], current.a[s], current.b[h][s][0], current.b[h][s][1]);
      }
    }
    if (following % groups_per_stage == 0 || following == groups) {
      __syncwarp();
      if (lane < blocks) barrier_arrive_at(empty + 8 * freeing.stage, lane);
      freeing.advance();
    }
  };
  for (int group = 0; group < groups; group += 2) {
    step(group, fragments[0], fragments[1]);
    if (group + 1 < groups) step(group + 1, fragments[1], fragments[0]);
  }
}

// Complete the sums and store them.
template <class Out, int Halves>
__device__ __forceinline__ void store_sums(const float (&sum)[Halves][4], const Operands& o,
                                           int row, int column, int lane) {
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const int r = row + lane / 4 + e / 2 * 8, c = column + lane % 4 * 2 + e % 2;
    if (r >= o.m || c >= o.n) continue;
    float v;
    if constexpr (Halves == 2) {
      v = complete_swiglu<__nv_bfloat16, Out>(o.epilogue, sum[0][e], sum[1][e], r, c, o.n);
    } else {
      v = complete<__nv_bfloat16, Out>(o.epilogue, sum[0][e], r, c);
    }
    static_cast<Out*>(o.y)[r * o.y_stride + c] = from_float<Out>(v);
  }
}

#endif  // sm_90

template <int RowTiles, int ColumnTiles, int Halves>
__global__ void __launch_bounds__((RowTiles * ColumnTiles + 1) * 32)
    small_kernel(const Operands o) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  constexpr int columns = 8 * ColumnTiles, computing = RowTiles * ColumnTiles;
  extern __shared__ __align__(128) unsigned char shared[];
  const std::uint32_t full = shared_address(shared), empty = full + 8 * most_stages;
  const std::uint32_t memory = full + barrier_bytes;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = blockIdx.y * 16 * RowTiles, column = blockIdx.x * columns;
  if (threadIdx.x == 0) {
    for (int s = 0; s < o.stages; ++s) {
      barrier_init(full + 8 * s, 1);
      barrier_init(empty + 8 * s, computing * cluster_size());
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  cluster_sync();
  if (warp == computing) {
    copy_stages<RowTiles, columns, Halves>(o, memory, full, empty, row, column, lane);
  } else {
    const int row_tile = warp % RowTiles, column_tile = warp / RowTiles;
    float sum[Halves][4] = {};
    multiply_stages<RowTiles, columns, Halves>(sum, o, memory, full, empty, row_tile, column_tile,
                                               lane);
    const int r = row + 16 * row_tile, c = column + 8 * column_tile;
    if (o.wide) {
      store_sums<float, Halves>(sum, o, r, c, lane);
    } else {
      store_sums<__nv_bfloat16, Halves>(sum, o, r, c, lane);
    }
  }
  __syncwarp();
  cluster_sync();  // a neighbour may still copy into this block's memory or arrive at its barriers
#endif
}

// Launch with clusters and as many stages as fit.
bool is_hopper() {
  static const bool yes = [] {
    int device = 0, major = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           major == 9;
  }();
  return yes;
}

template <int RowTiles, int ColumnTiles, int Halves>
void launch(Operands o, const SmallVariant& variant, cudaStream_t stream) {
  using Layout = Stage<RowTiles, 8 * ColumnTiles, Halves>;
  constexpr int all = 227 * 1024, half = 112 * 1024;
  const int fit = ((variant.half ? half : all) - barrier_bytes) / Layout::bytes;
  o.stages =
      std::max(2, std::min({fit, most_stages, static_cast<int>(ceil_div(o.k, stage_terms)) + 1}));
  const int bytes = barrier_bytes + o.stages * Layout::bytes;
  const auto kernel = small_kernel<RowTiles, ColumnTiles, Halves>;
  allow_shared_memory(kernel, static_cast<std::size_t>(bytes));
  const std::int64_t blocks =
      ceil_div(ceil_div(o.n, 8 * ColumnTiles), variant.cluster) * variant.cluster;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(variant.cluster), 1, 1};
  cudaLaunchConfig_t configuration{};
  configuration.gridDim =
      dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(ceil_div(o.m, 16 * RowTiles)));
  configuration.blockDim = dim3((RowTiles * ColumnTiles + 1) * 32);
  configuration.dynamicSmemBytes = static_cast<std::size_t>(bytes);
  configuration.stream = stream;
  configuration.attrs = &cluster;
  configuration.numAttrs = 1;
  ROSE_CUDA_CHECK(cudaLaunchKernelEx(&configuration, kernel, o));
}

template <int RowTiles, int ColumnTiles>
void launch_halves(const Operands& o, const SmallVariant& variant, cudaStream_t stream) {
  if (o.epilogue.activation == Activation::swiglu) {
    launch<RowTiles, ColumnTiles, 2>(o, variant, stream);
  } else {
    launch<RowTiles, ColumnTiles, 1>(o, variant, stream);
  }
}

template <int RowTiles>
void launch_columns(const Operands& o, const SmallVariant& variant, cudaStream_t stream) {
  if (variant.column_tiles == 1) return launch_halves<RowTiles, 1>(o, variant, stream);
  if (variant.column_tiles == 2) return launch_halves<RowTiles, 2>(o, variant, stream);
  launch_halves<RowTiles, 4>(o, variant, stream);
}

}  // namespace

bool small_fits(const LinearShape& shape) {
  return shape.in == DType::bf16 && shape.aligned && shape.k > 0 && shape.k % group_terms == 0 &&
         is_hopper();
}

void run_small(const LinearPlan& plan, const LinearArguments& a, Stream stream) {
  const LinearShape& shape = plan.shape;
  const Operands o{static_cast<const __nv_bfloat16*>(a.x.data),
                   static_cast<const __nv_bfloat16*>(a.w.data),
                   a.y.data,
                   a.x.row_stride(),
                   a.w.row_stride(),
                   a.y.row_stride(),
                   static_cast<int>(shape.m),
                   static_cast<int>(shape.n),
                   static_cast<int>(shape.k),
                   0,
                   shape.out == DType::f32,
                   epilogue_of(shape, a)};
  const SmallVariant variant = small_variant(plan.variant);
  if (shape.m <= 16) return launch_columns<1>(o, variant, to_cuda(stream));
  if (shape.m <= 32) return launch_columns<2>(o, variant, to_cuda(stream));
  launch_columns<4>(o, variant, to_cuda(stream));
}

}  // namespace rose::kernels::gpu::linear_paths
