// Add, norm and multiply a few rows, weights fetched ahead.

#include <algorithm>

#include "rose/kernels/gpu/chain.cuh"
#include "rose/kernels/gpu/hopper.cuh"
#include "rose/kernels/gpu/linear.cuh"
#include "rose/kernels/gpu/rows.cuh"
#include "rose/kernels/gpu/token_linear.h"

namespace rose::kernels::gpu {
namespace {

using bf16x = __nv_bfloat16;
constexpr int kThreads = 256, kTile = 8, kPad = 8;
constexpr int kMostGroups = 4;  // of eight numbers of a row, that a thread holds
static_assert(kThreads == numerics::row_slots);

struct Call {
  const bf16x *x, *add, *w;
  bf16x *sum, *y;
  const void* norm;
  bool norm_f32;
  float eps;
  std::int64_t x_stride, add_stride, sum_stride, w_stride, y_stride;
  int m, n, k, tiles;  // tiles: of a block
  linear_paths::Epilogue epilogue;
};

// Ask for all rows of the block's weight.
__device__ __forceinline__ void copy_row(std::uint32_t to, const void* from, int bytes,
                                         std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

/// Tile t of the block has rows 8 t to 8 t + 7 of shared memory, its second half the rows behind all first halves.
template <int Halves>
__device__ __forceinline__ void fetch_weight(const Call& c, std::uint32_t weight,
                                             std::uint32_t barrier) {
  const int first = static_cast<int>(blockIdx.x) * c.tiles * kTile;
  const int columns = min(c.tiles * kTile, c.n - first);
  const int lane = static_cast<int>(threadIdx.x), bytes = c.k * 2;
  if (lane == 0) hopper::barrier_arrive_expecting(barrier, columns * Halves * bytes);
  __syncwarp();
  for (int r = lane; r < columns * Halves; r += 32) {
    const int half = r / columns, column = r % columns;
    copy_row(weight + (half * c.tiles * kTile + column) * (c.k + kPad) * 2,
             c.w + (std::int64_t{half} * c.n + first + column) * c.w_stride, bytes, barrier);
  }
}

// Bring the rows, summed and normed, into shared memory.
using NormWeights = float[kMostGroups][group_size];

__device__ __forceinline__ void load_norm_weights(const Call& c, int col, float (&to)[group_size]) {
  if (c.norm_f32) {
    const auto* four = reinterpret_cast<const float4*>(static_cast<const float*>(c.norm) + col);
    const float4 a = four[0], b = four[1];
    to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w;
    to[4] = b.x, to[5] = b.y, to[6] = b.z, to[7] = b.w;
  } else {
    const auto group = load_group<true>(static_cast<const bf16x*>(c.norm) + col, group_size);
    ROSE_UNROLL()
    for (int e = 0; e < group_size; ++e) to[e] = to_float(group.at[e]);
  }
}

template <bool Norm>
__device__ __forceinline__ void bring_rows(const Call& c, bf16x* rows, float* shared,
                                           const NormWeights& weight) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int r = 0; r < c.m; ++r) {
    Group<bf16x> x[kMostGroups];
    float squares = 0.0f;
    ROSE_UNROLL()
    for (int g = 0; g < kMostGroups; ++g) {
      const int col = (g * kThreads + thread) * group_size;
      if (col >= c.k) continue;
      x[g] = load_group<true>(c.x + r * c.x_stride + col, group_size);
      if (Norm && c.add != nullptr) {
        const auto other = load_group<true>(c.add + r * c.add_stride + col, group_size);
        ROSE_UNROLL()
        for (int e = 0; e < group_size; ++e) {
          x[g].at[e] = from_float<bf16x>(to_float(x[g].at[e]) + to_float(other.at[e]));
        }
        if (blockIdx.x == 0) store_group<true>(c.sum + r * c.sum_stride + col, x[g], group_size);
      }
      ROSE_UNROLL()
      for (int e = 0; e < group_size; ++e) {
        const float d = to_float(x[g].at[e]);
        squares = fmaf(d, d, squares);
      }
    }
    float inv = 1.0f;
    if constexpr (Norm) {
      const float total = fold_threads<kThreads>(squares, shared + r % 2 * kThreads, Plus{});
      inv = 1.0f / sqrtf(total / static_cast<float>(c.k) + c.eps);
    }
    ROSE_UNROLL()
    for (int g = 0; g < kMostGroups; ++g) {
      const int col = (g * kThreads + thread) * group_size;
      if (col >= c.k) continue;
      if constexpr (Norm) {
        ROSE_UNROLL()
        for (int e = 0; e < group_size; ++e) {
          x[g].at[e] =
              from_float<bf16x>(round_to<bf16x>(to_float(x[g].at[e]) * inv) * weight[g][e]);
        }
      }
      *reinterpret_cast<Group<bf16x>*>(rows + r * (c.k + kPad) + col) = x[g];
    }
  }
}

// Multiply in order, fragments loaded ahead.
constexpr int kSteps = 8, kTerms = 16 * kSteps;  // of a batch of fragments

template <int Halves>
struct TokenFragments {
  std::uint32_t a[kSteps][2], b[Halves][kSteps][2];
};

template <int Halves>
__device__ __forceinline__ void load_batch(TokenFragments<Halves>& f, const bf16x* row,
                                           std::uint32_t weight, std::uint32_t half_bytes, int k) {
  ROSE_UNROLL()
  for (int s = 0; s < kSteps; ++s) {
    const auto* at = reinterpret_cast<const std::uint32_t*>(row + k + 16 * s);
    f.a[s][0] = at[0];
    f.a[s][1] = at[4];
  }
  ROSE_UNROLL()
  for (int h = 0; h < Halves; ++h) {
    ROSE_UNROLL()
    for (int s = 0; s < kSteps; s += 2) {
      std::uint32_t two[4];
      ldmatrix_x4(two, weight + h * half_bytes + (k + 16 * s) * 2);
      f.b[h][s][0] = two[0], f.b[h][s][1] = two[1];
      f.b[h][s + 1][0] = two[2], f.b[h][s + 1][1] = two[3];
    }
  }
}

template <int Halves>
__device__ __forceinline__ void multiply_batch(float (&sum)[Halves][4],
                                               const TokenFragments<Halves>& f) {
  ROSE_UNROLL()
  for (int s = 0; s < kSteps; ++s) {
    const std::uint32_t a[4] = {f.a[s][0], 0, f.a[s][1], 0};
    ROSE_UNROLL()
    for (int h = 0; h < Halves; ++h) {
      mma_16x8x16<bf16x>(sum[h], a, f.b[h][s][0], f.b[h][s][1]);
    }
  }
}

// Fetch, wait, norm, multiply, store.
template <int Halves, bool Norm>
__global__ void __launch_bounds__(kThreads) token_kernel(const Call c) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ __align__(8) std::uint64_t barrier_memory;
  __shared__ float shared[2 * kThreads];
  auto* const rows = reinterpret_cast<bf16x*>(memory);
  const std::uint32_t weight = shared_address(memory) + (c.m + 1) * (c.k + kPad) * 2;
  const std::uint32_t barrier = shared_address(&barrier_memory);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  allow_next();
  if (threadIdx.x == 0) {
    hopper::barrier_init(barrier, 1);
    hopper::barrier_init_fence();
  }
  __syncwarp();
  if (warp == 0) fetch_weight<Halves>(c, weight, barrier);
  for (int col = static_cast<int>(threadIdx.x) * group_size; col < c.k;
       col += kThreads * group_size) {
    *reinterpret_cast<uint4*>(rows + c.m * (c.k + kPad) + col) = make_uint4(0, 0, 0, 0);
  }
  NormWeights norm_weights = {};
  ROSE_UNROLL()
  for (int g = 0; Norm && g < kMostGroups; ++g) {
    const int col = (g * kThreads + static_cast<int>(threadIdx.x)) * group_size;
    if (col < c.k) load_norm_weights(c, col, norm_weights[g]);
  }
  await_previous();
  bring_rows<Norm>(c, rows, shared, norm_weights);
  __syncthreads();
  const int column = (static_cast<int>(blockIdx.x) * c.tiles + warp) * kTile;
  if (warp >= c.tiles || column >= c.n) return;
  hopper::barrier_wait(barrier, 0);
  const int pitch = (c.k + kPad) * 2;
  const std::uint32_t own = weight + (warp * kTile + lane % 8) * pitch + lane / 8 * 16;
  const std::uint32_t half_bytes = c.tiles * kTile * pitch;
  const int row = lane / 4;
  const bf16x* const from = rows + min(row, c.m) * (c.k + kPad) + lane % 4 * 2;
  float sum[Halves][4] = {};
  TokenFragments<Halves> fragments[2];
  load_batch(fragments[0], from, own, half_bytes, 0);
  for (int k = 0; k < c.k; k += 2 * kTerms) {
    if (k + kTerms < c.k) load_batch(fragments[1], from, own, half_bytes, k + kTerms);
    multiply_batch(sum, fragments[0]);
    if (k + kTerms >= c.k) break;
    if (k + 2 * kTerms < c.k) {
      load_batch(fragments[0], from, own, half_bytes, k + 2 * kTerms);
    }
    multiply_batch(sum, fragments[1]);
  }
  if (row >= c.m) return;
  ROSE_UNROLL()
  for (int i = 0; i < 2; ++i) {
    const int at = column + lane % 4 * 2 + i;
    float v;
    if constexpr (Halves == 2) {
      v = linear_paths::complete_swiglu<bf16x, bf16x>(c.epilogue, sum[0][i], sum[1][i], row, at,
                                                      c.n);
    } else {
      v = linear_paths::complete<bf16x, bf16x>(c.epilogue, sum[0][i], row, at);
    }
    c.y[row * c.y_stride + at] = from_float<bf16x>(v);
  }
#endif
}

}  // namespace

// Divide the columns over the multiprocessors.
namespace {

struct Division {
  int tiles = 0;  // of a block
  unsigned blocks = 0;
  std::size_t bytes = 0;
};

Division divide(const LinearShape& shape) {
  int device = 0, processors = 1;
  ROSE_CUDA_CHECK(cudaGetDevice(&device));
  ROSE_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  const std::int64_t all = shape.n / kTile, halves = shape.weight_rows() / shape.n;
  Division d;
  d.tiles = static_cast<int>(ceil_div(all, processors));
  d.blocks = static_cast<unsigned>(ceil_div(all, d.tiles));
  d.bytes =
      static_cast<std::size_t>((shape.m + 1 + d.tiles * kTile * halves) * (shape.k + kPad) * 2);
  return d;
}

template <int Halves, bool Norm>
void launch(const Call& call, const Division& d, bool early, cudaStream_t stream) {
  allow_shared_memory(token_kernel<Halves, Norm>, d.bytes);
  if (early) {
    launch_early(token_kernel<Halves, Norm>, d.blocks, kThreads, d.bytes, stream, call);
  } else {
    token_kernel<Halves, Norm><<<d.blocks, kThreads, d.bytes, stream>>>(call);
    ROSE_LAUNCH_CHECK("linear");
  }
}

}  // namespace

// Launch what fits.
bool token_linear_device_fits(const LinearShape& shape) {
  constexpr int hopper = 90, after = 100;
  const int running = running_capability();
  if (running < hopper || running >= after) return false;
  constexpr std::size_t room = 160 * 1024;  // beside a kernel before and after
  const Division d = divide(shape);
  return d.tiles <= kThreads / 32 && d.bytes <= room;
}

void launch_token_linear(const LinearShape& shape, const TokenLinear& a, Stream stream,
                         bool early) {
  const Division d = divide(shape);
  const auto data = [](const Matrix& m) { return static_cast<bf16x*>(m.data); };
  const LinearArguments linear{.x = a.x, .w = a.w, .bias = a.bias, .y = a.y};
  const Call call{.x = data(a.x),
                  .add = data(a.add),
                  .w = data(a.w),
                  .sum = data(a.sum),
                  .y = data(a.y),
                  .norm = a.norm.data,
                  .norm_f32 = a.norm.dtype == DType::f32,
                  .eps = a.eps,
                  .x_stride = a.x.row_stride(),
                  .add_stride = a.add.row_stride(),
                  .sum_stride = a.sum.row_stride(),
                  .w_stride = a.w.row_stride(),
                  .y_stride = a.y.row_stride(),
                  .m = static_cast<int>(shape.m),
                  .n = static_cast<int>(shape.n),
                  .k = static_cast<int>(shape.k),
                  .tiles = d.tiles,
                  .epilogue = linear_paths::epilogue_of(shape, linear)};
  const cudaStream_t s = to_cuda(stream);
  const bool norm = a.norm.data != nullptr;
  if (shape.activation == Activation::swiglu) {
    return norm ? launch<2, true>(call, d, early, s) : launch<2, false>(call, d, early, s);
  }
  norm ? launch<1, true>(call, d, early, s) : launch<1, false>(call, d, early, s);
}

// Be a path of the linear layer.
namespace linear_paths {

bool resident_fits(const LinearShape& shape) {
  return token_linear_fits(shape);
}

void run_resident(const LinearPlan& plan, const LinearArguments& a, Stream stream) {
  launch_token_linear(plan.shape, {.x = a.x, .w = a.w, .bias = a.bias, .y = a.y}, stream, false);
}

}  // namespace linear_paths

}  // namespace rose::kernels::gpu
