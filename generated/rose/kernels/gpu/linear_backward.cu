// Multiply back, slice by slice, and add biases' columns.

#include <cublasLt.h>

#include <algorithm>
#include <cstring>

#include "rose/kernels/gpu/activation.cuh"
#include "rose/kernels/gpu/buffer.h"
#include "rose/kernels/gpu/group.cuh"
#include "rose/kernels/gpu/linear_backward.h"

namespace rose::kernels::gpu {
namespace {

void check_library(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw core::Error(core::Code::internal,
                    std::string(what) + ": cuBLASLt status " + std::to_string(status));
}

cublasLtHandle_t library() {
  static const cublasLtHandle_t handle = [] {
    cublasLtHandle_t created = nullptr;
    check_library(cublasLtCreate(&created), "cublasLtCreate");
    return created;
  }();
  return handle;
}

// Describe a product to the library.
struct Problem {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t left, right, out;

  Problem(const BackwardShape& s, std::int64_t slices, std::int64_t left_stride,
          std::int64_t right_stride, std::int64_t out_stride) {
    const bool weight = s.product == BackwardProduct::weight;
    const cudaDataType_t in = s.in == DType::f32   ? CUDA_R_32F
                              : s.in == DType::f16 ? CUDA_R_16F
                                                   : CUDA_R_16BF;
    check_library(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                  "cublasLtMatmulDescInit");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    if (weight) {
      check_library(cublasLtMatmulDescSetAttribute(&operation, CUBLASLT_MATMUL_DESC_TRANSB,
                                                   &transposed, sizeof transposed),
                    "transposition");
    }
    const std::int64_t m = s.m / slices;
    describe(left, in, s.k, weight ? m : s.n, left_stride, slices, m * left_stride);
    describe(right, in, s.n, m, right_stride, slices, m * right_stride);
    describe(out, weight ? CUDA_R_32F : in, s.k, weight ? s.n : m, out_stride, slices, s.n * s.k);
  }

 private:
  static void describe(cublasLtMatrixLayoutOpaque_t& layout, cudaDataType_t type, std::int64_t rows,
                       std::int64_t cols, std::int64_t stride, std::int64_t slices,
                       std::int64_t between) {
    check_library(cublasLtMatrixLayoutInit(&layout, type, static_cast<std::uint64_t>(rows),
                                           static_cast<std::uint64_t>(cols), stride),
                  "cublasLtMatrixLayoutInit");
    if (slices == 1) return;
    const auto count = static_cast<std::int32_t>(slices);
    check_library(cublasLtMatrixLayoutSetAttribute(&layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                   &count, sizeof count),
                  "batch count");
    check_library(
        cublasLtMatrixLayoutSetAttribute(&layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                         &between, sizeof between),
        "batch offset");
  }
};

// Add the slices in ascending order.
constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    fold_slices_kernel(const float4* partial, int slices, std::int64_t fours, float4* to) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= fours) return;
  float4 sum = partial[i];
  for (int s = 1; s < slices; ++s) {
    const float4 more = partial[s * fours + i];
    sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
  }
  float4 old = to[i];
  old.x += sum.x, old.y += sum.y, old.z += sum.z, old.w += sum.w;
  to[i] = old;
}

// Sum columns of a chunk of rows, then of all chunks.
constexpr int kChunk = 256, kWarp = 32, kWarps = kThreads / kWarp;

/// Adds the warps' sums of a block's columns.
__device__ __forceinline__ void store_chunk(const float (&sum)[group_size], std::int64_t cols,
                                            float* partial) {
  __shared__ float shared[kWarps][kWarp * group_size];
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  ROSE_UNROLL()
  for (int e = 0; e < group_size; ++e) shared[warp][lane * group_size + e] = sum[e];
  __syncthreads();
  const std::int64_t mine = std::int64_t{blockIdx.x} * kWarp * group_size + threadIdx.x;
  if (mine >= cols) return;
  float total = shared[0][threadIdx.x];
  ROSE_UNROLL()
  for (int w = 1; w < kWarps; ++w) total += shared[w][threadIdx.x];
  partial[blockIdx.y * cols + mine] = total;
}

template <class T, bool kWide>
__global__ void __launch_bounds__(kThreads)
    bias_chunks_kernel(const T* dy, std::int64_t rows, std::int64_t cols, std::int64_t stride,
                       float* partial) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t col = (std::int64_t{blockIdx.x} * kWarp + lane) * group_size;
  const std::int64_t first = std::int64_t{blockIdx.y} * kChunk, last = min(rows, first + kChunk);
  float sum[group_size] = {};
  ROSE_UNROLL(8)
  for (std::int64_t row = first + warp; row < last; row += kWarps) {
    const Group<T> group = load_group<kWide>(dy + row * stride + col, cols - col);
    ROSE_UNROLL()
    for (int e = 0; e < group_size; ++e) sum[e] += to_float(group.at[e]);
  }
  store_chunk(sum, cols, partial);
}

__global__ void __launch_bounds__(kWarp* kWarps)
    bias_fold_kernel(const float* partial, std::int64_t chunks, std::int64_t cols, float* db) {
  __shared__ float shared[kWarps][kWarp];
  const std::int64_t col = std::int64_t{blockIdx.x} * kWarp + threadIdx.x;
  float sum = 0.0f;
  if (col < cols) {
    ROSE_UNROLL(8)
    for (std::int64_t c = threadIdx.y; c < chunks; c += kWarps) sum += partial[c * cols + col];
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || col >= cols) return;
  ROSE_UNROLL()
  for (int w = 1; w < kWarps; ++w) sum += shared[w][threadIdx.x];
  db[col] += sum;
}

// Go back through GELU, and sum the columns of the result.
template <class T, Gelu kKind, bool kWide>
__global__ void __launch_bounds__(kThreads)
    gelu_bias_kernel(const T* x, std::int64_t x_stride, const T* dy, std::int64_t dy_stride, T* dx,
                     std::int64_t dx_stride, std::int64_t rows, std::int64_t cols, float* partial) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t col = (std::int64_t{blockIdx.x} * kWarp + lane) * group_size;
  const std::int64_t first = std::int64_t{blockIdx.y} * kChunk, last = min(rows, first + kChunk);
  constexpr int ahead = 4;
  float sum[group_size] = {};
  for (std::int64_t row = first + warp; row < last; row += ahead * kWarps) {
    Group<T> at[ahead], slope[ahead];
    ROSE_UNROLL()
    for (int i = 0; i < ahead; ++i) {
      const std::int64_t r = row + i * kWarps, left = r < last ? cols - col : 0;
      at[i] = load_group<kWide>(x + r * x_stride + col, left);
      slope[i] = load_group<kWide>(dy + r * dy_stride + col, left);
    }
    ROSE_UNROLL()
    for (int i = 0; i < ahead; ++i) {
      const std::int64_t r = row + i * kWarps, left = r < last ? cols - col : 0;
      ROSE_UNROLL()
      for (int e = 0; e < group_size; ++e) {
        const float z = to_float(at[i].at[e]);
        const float d = kKind == Gelu::exact ? gelu_exact_slope(z) : gelu_tanh_slope(z);
        slope[i].at[e] = from_float<T>(to_float(slope[i].at[e]) * d);
        sum[e] += to_float(slope[i].at[e]);
      }
      store_group<kWide>(dx + r * dx_stride + col, slope[i], left);
    }
  }
  store_chunk(sum, cols, partial);
}

}  // namespace

// Ask for algorithms.
std::vector<BackwardPlan> backward_plans(const BackwardShape& shape, std::int64_t slices,
                                         int most) {
  const bool weight = shape.product == BackwardProduct::weight;
  Problem problem(shape, slices, shape.k, shape.n, shape.k);
  cublasLtMatmulPreferenceOpaque_t preference;
  check_library(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
  const std::size_t allowed = std::size_t{32} << 20;
  check_library(
      cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                           &allowed, sizeof allowed),
      "workspace preference");
  if (!shape.free) {
    const std::uint32_t none = CUBLASLT_REDUCTION_SCHEME_NONE;
    check_library(cublasLtMatmulPreferenceSetAttribute(
                      &preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &none, sizeof none),
                  "reduction preference");
  }
  std::array<cublasLtMatmulHeuristicResult_t, 16> proposals{};
  int found = 0;
  check_library(
      cublasLtMatmulAlgoGetHeuristic(library(), &problem.operation, &problem.left, &problem.right,
                                     &problem.out, &problem.out, &preference,
                                     static_cast<int>(proposals.size()), proposals.data(), &found),
      "cublasLtMatmulAlgoGetHeuristic");
  std::vector<BackwardPlan> plans;
  const std::size_t partials =
      weight && slices > 1 ? static_cast<std::size_t>(slices * shape.n * shape.k) * sizeof(float)
                           : 0;
  for (int i = 0; i < found && static_cast<int>(plans.size()) < most; ++i) {
    const cublasLtMatmulHeuristicResult_t& proposal = proposals[static_cast<std::size_t>(i)];
    std::int32_t splits = 1;
    std::size_t written = 0;
    cublasLtMatmulAlgoConfigGetAttribute(&proposal.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits,
                                         sizeof splits, &written);
    if (proposal.state != CUBLAS_STATUS_SUCCESS || (!shape.free && splits > 1)) continue;
    BackwardPlan plan{.shape = shape, .slices = slices};
    static_assert(sizeof plan.algorithm == sizeof proposal.algo.data);
    std::memcpy(plan.algorithm.data(), proposal.algo.data, sizeof plan.algorithm);
    plan.library_workspace = (proposal.workspaceSize + 255) / 256 * 256;
    plan.workspace_bytes = plan.library_workspace + partials;
    plans.push_back(plan);
  }
  if (plans.empty()) {
    throw core::Error(core::Code::unsupported, "cuBLASLt has no algorithm for a backward product")
        .in("shape");
  }
  return plans;
}

// Multiply.
void run_backward(const BackwardPlan& plan, const Matrix& left, const Matrix& right,
                  const Matrix& out, Workspace workspace, Stream stream) {
  const bool weight = plan.shape.product == BackwardProduct::weight, sliced = plan.slices > 1;
  auto* const memory = static_cast<std::byte*>(workspace.data);
  void* const to = sliced ? memory + plan.library_workspace : out.data;
  Problem problem(plan.shape, plan.slices, left.row_stride(), right.row_stride(), out.row_stride());
  cublasLtMatmulAlgo_t algorithm;
  std::memcpy(algorithm.data, plan.algorithm.data(), sizeof algorithm.data);
  const float one = 1.0f, add = weight && !sliced ? 1.0f : 0.0f;
  check_library(cublasLtMatmul(library(), &problem.operation, &one, left.data, &problem.left,
                               right.data, &problem.right, &add, to, &problem.out, to, &problem.out,
                               &algorithm, memory, plan.library_workspace, to_cuda(stream)),
                "cublasLtMatmul");
  if (!sliced) return;
  const std::int64_t fours = plan.shape.n * plan.shape.k / 4;
  fold_slices_kernel<<<static_cast<unsigned>(ceil_div(fours, kThreads)), kThreads, 0,
                       to_cuda(stream)>>>(static_cast<const float4*>(to),
                                          static_cast<int>(plan.slices), fours,
                                          static_cast<float4*>(out.data));
  ROSE_LAUNCH_CHECK("fold_slices");
}

// Sum columns.
void launch_bias_backward(const Matrix& dy, float* db, Workspace workspace, Stream stream) {
  auto* const partial = static_cast<float*>(workspace.data);
  const std::int64_t chunks = ceil_div(dy.rows, kChunk);
  const dim3 grid(static_cast<unsigned>(ceil_div(dy.cols, kWarp * group_size)),
                  static_cast<unsigned>(chunks));
  with_activation(dy.dtype, [&]<class T>(T*) {
    const auto launch = [&](auto kernel) {
      kernel<<<grid, kThreads, 0, to_cuda(stream)>>>(static_cast<const T*>(dy.data), dy.rows,
                                                     dy.cols, dy.row_stride(), partial);
    };
    is_wide(dy) ? launch(bias_chunks_kernel<T, true>) : launch(bias_chunks_kernel<T, false>);
  });
  bias_fold_kernel<<<static_cast<unsigned>(ceil_div(dy.cols, kWarp)), dim3(kWarp, kWarps), 0,
                     to_cuda(stream)>>>(partial, chunks, dy.cols, db);
  ROSE_LAUNCH_CHECK("bias_backward");
}

void launch_gelu_bias_backward(const Matrix& x, const Matrix& dy, const Matrix& dx, Gelu kind,
                               float* db, Workspace workspace, Stream stream) {
  auto* const partial = static_cast<float*>(workspace.data);
  const std::int64_t chunks = ceil_div(x.rows, kChunk);
  const dim3 grid(static_cast<unsigned>(ceil_div(x.cols, kWarp * group_size)),
                  static_cast<unsigned>(chunks));
  const bool wide = all_wide(x, dy, dx);
  with_activation(x.dtype, [&]<class T>(T*) {
    const auto launch = [&](auto kernel) {
      kernel<<<grid, kThreads, 0, to_cuda(stream)>>>(
          static_cast<const T*>(x.data), x.row_stride(), static_cast<const T*>(dy.data),
          dy.row_stride(), static_cast<T*>(dx.data), dx.row_stride(), x.rows, x.cols, partial);
    };
    if (kind == Gelu::exact) {
      wide ? launch(gelu_bias_kernel<T, Gelu::exact, true>)
           : launch(gelu_bias_kernel<T, Gelu::exact, false>);
    } else {
      wide ? launch(gelu_bias_kernel<T, Gelu::tanh, true>)
           : launch(gelu_bias_kernel<T, Gelu::tanh, false>);
    }
  });
  bias_fold_kernel<<<static_cast<unsigned>(ceil_div(x.cols, kWarp)), dim3(kWarp, kWarps), 0,
                     to_cuda(stream)>>>(partial, chunks, x.cols, db);
  ROSE_LAUNCH_CHECK("gelu_bias_backward");
}

// Time plans on random numbers.
std::vector<Timing> time_backward(std::span<const BackwardPlan> plans, int samples) {
  const BackwardShape& s = plans.front().shape;
  const auto buffer = [&](std::int64_t rows, std::int64_t cols, DType dtype, std::uint32_t seed) {
    Buffer made(static_cast<std::size_t>(rows) * row_bytes(dtype, cols));
    fill_random(made, dtype, seed);
    return made;
  };
  const bool weight = s.product == BackwardProduct::weight;
  const Buffer dy = buffer(s.m, s.n, s.in, 1), other = buffer(weight ? s.m : s.n, s.k, s.in, 2),
               out = buffer(weight ? s.n : s.m, s.k, weight ? DType::f32 : s.in, 3);
  std::size_t room = 0;
  for (const BackwardPlan& plan : plans) room = std::max(room, plan.workspace_bytes);
  const Buffer workspace(room);
  const Matrix right{dy.data(), s.in, s.m, s.n}, left{other.data(), s.in, weight ? s.m : s.n, s.k},
      to{out.data(), weight ? DType::f32 : s.in, weight ? s.n : s.m, s.k};
  std::vector<Launch> sides;
  for (const BackwardPlan& plan : plans) {
    sides.emplace_back([&, plan](int, Stream stream) {
      run_backward(plan, left, right, to, workspace.workspace(), stream);
    });
  }
  return time_interleaved(sides, {.copies = 1, .rounds = 1, .samples = samples, .warmup = 1});
}

}  // namespace rose::kernels::gpu
