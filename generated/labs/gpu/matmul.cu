// Climb the ladder.

#include "labs/gpu/matmul.h"
#include "rose/kernels/gpu/cuda.cuh"
#include "rose/kernels/gpu/group.cuh"

namespace rose::labs {
namespace {

using kernels::gpu::ceil_div;
using kernels::gpu::to_cuda;

/// What a launch computes: c [m, n] = a [m, k] b [k, n].
struct Product {
  const float *a, *b;
  float* c;
  int m, n, k;
  std::int64_t stride;  // from one row of a to the next

  __device__ const float* row_of_a(int row) const { return a + row * stride; }
  __device__ const float* row_of_b(int row) const { return b + std::int64_t{row} * n; }
  __device__ float* row_of_c(int row) const { return c + std::int64_t{row} * n; }
  /// Of a sum that is split: the piece's k, and a place for its own result.
  __device__ void take_piece(int piece) {
    a += std::int64_t{piece} * k, b += std::int64_t{piece} * k * n,
        c += std::int64_t{piece} * m * n;
  }
};

// One output per thread; lanes below or beside each other.
template <bool kBeside>
__global__ void one_kernel(Product p) {
  const int inner = static_cast<int>(blockIdx.x * 32 + threadIdx.x),
            outer = static_cast<int>(blockIdx.y * 32 + threadIdx.y);
  const int row = kBeside ? outer : inner, column = kBeside ? inner : outer;
  if (row >= p.m || column >= p.n) return;
  const float* a = p.row_of_a(row);
  const float* b = p.b + column;
  float sum = 0;
  for (int k = 0; k < p.k; ++k, b += p.n) sum = __fmaf_rn(a[k], *b, sum);
  p.row_of_c(row)[column] = sum;
}

// Share a square of each matrix in a block.
__global__ void tile_kernel(Product p) {
  constexpr int side = 32;
  __shared__ float a[side][side], b[side][side];
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const int row = static_cast<int>(blockIdx.y) * side + y;
  const int column = static_cast<int>(blockIdx.x) * side + x;
  float sum = 0;
  for (int k = 0; k < p.k; k += side) {
    a[y][x] = row < p.m && k + x < p.k ? p.row_of_a(row)[k + x] : 0.0f;
    b[y][x] = k + y < p.k && column < p.n ? p.row_of_b(k + y)[column] : 0.0f;
    __syncthreads();
    ROSE_UNROLL()
    for (int i = 0; i < side; ++i) sum = __fmaf_rn(a[y][i], b[i][x], sum);
    __syncthreads();
  }
  if (row < p.m && column < p.n) p.row_of_c(row)[column] = sum;
}

// Eight outputs below each other.
constexpr int kEach = 8;  // outputs of a thread along one side

__global__ void __launch_bounds__(512) column_kernel(Product p) {
  constexpr int side = 64, depth = 8;
  __shared__ float a[side][depth], b[depth][side];
  const int thread = static_cast<int>(threadIdx.x);
  const int top = static_cast<int>(blockIdx.y) * side, left = static_cast<int>(blockIdx.x) * side;
  const int rows = thread / side * kEach, column = thread % side;
  float sum[kEach] = {};
  for (int k = 0; k < p.k; k += depth) {
    const int r = top + thread / depth, i = k + thread % depth;
    a[thread / depth][thread % depth] = r < p.m && i < p.k ? p.row_of_a(r)[i] : 0.0f;
    const int line = k + thread / side, c = left + thread % side;
    b[thread / side][thread % side] = line < p.k && c < p.n ? p.row_of_b(line)[c] : 0.0f;
    __syncthreads();
    ROSE_UNROLL()
    for (int t = 0; t < depth; ++t) {
      const float right = b[t][column];
      ROSE_UNROLL()
      for (int j = 0; j < kEach; ++j) sum[j] = __fmaf_rn(a[rows + j][t], right, sum[j]);
    }
    __syncthreads();
  }
  ROSE_UNROLL()
  for (int j = 0; j < kEach; ++j) {
    if (top + rows + j < p.m && left + column < p.n)
      p.row_of_c(top + rows + j)[left + column] = sum[j];
  }
}

// Eight by eight outputs per thread.
constexpr int kTile = 128, kDepth = 8, kThreads = 256;
constexpr int kAcross = kTile / kEach;  // threads along a side of a tile

__global__ void __launch_bounds__(kThreads) square_kernel(Product p) {
  __shared__ float a[kTile][kDepth], b[kDepth][kTile];
  const int thread = static_cast<int>(threadIdx.x);
  const int top = static_cast<int>(blockIdx.y) * kTile, left = static_cast<int>(blockIdx.x) * kTile;
  const int row = thread / kAcross * kEach, column = thread % kAcross * kEach;
  float sum[kEach][kEach] = {};
  for (int k = 0; k < p.k; k += kDepth) {
    ROSE_UNROLL()
    for (int u = 0; u < kTile * kDepth / kThreads; ++u) {
      const int at = thread + u * kThreads;
      const int r = at / kDepth, i = at % kDepth, line = at / kTile, c = at % kTile;
      a[r][i] = top + r < p.m && k + i < p.k ? p.row_of_a(top + r)[k + i] : 0.0f;
      b[line][c] = k + line < p.k && left + c < p.n ? p.row_of_b(k + line)[left + c] : 0.0f;
    }
    __syncthreads();
    ROSE_UNROLL()
    for (int t = 0; t < kDepth; ++t) {
      float of_a[kEach], of_b[kEach];
      ROSE_UNROLL()
      for (int j = 0; j < kEach; ++j) of_a[j] = a[row + j][t], of_b[j] = b[t][column + j];
      ROSE_UNROLL()
      for (int j = 0; j < kEach; ++j) {
        ROSE_UNROLL()
        for (int l = 0; l < kEach; ++l) sum[j][l] = __fmaf_rn(of_a[j], of_b[l], sum[j][l]);
      }
    }
    __syncthreads();
  }
  ROSE_UNROLL()
  for (int j = 0; j < kEach; ++j) {
    for (int l = 0; l < kEach; ++l) {
      if (top + row + j < p.m && left + column + l < p.n)
        p.row_of_c(top + row + j)[left + column + l] = sum[j][l];
    }
  }
}

// Fetch two quads, and put them into shared memory, A turned.
constexpr int kPitch = kTile + 4;  // of a line of A's tile

struct Quads {
  float4 a, b;
};

__device__ __forceinline__ Quads fetch(const Product& p, int top, int left, int k) {
  const int thread = static_cast<int>(threadIdx.x);
  const int row = top + thread / 2, at = k + thread % 2 * 4;
  const int line = k + thread / 32, column = left + thread % 32 * 4;
  Quads held{};  // zeros beyond the edges
  if (row < p.m && at < p.k) held.a = *reinterpret_cast<const float4*>(p.row_of_a(row) + at);
  if (line < p.k && column < p.n)
    held.b = *reinterpret_cast<const float4*>(p.row_of_b(line) + column);
  return held;
}

__device__ __forceinline__ void put(const Quads& held, float* a, float* b) {
  const int thread = static_cast<int>(threadIdx.x);
  float* to = a + thread % 2 * 4 * kPitch + thread / 2;
  to[0] = held.a.x, to[kPitch] = held.a.y, to[2 * kPitch] = held.a.z, to[3 * kPitch] = held.a.w;
  *reinterpret_cast<float4*>(b + thread / 32 * kTile + thread % 32 * 4) = held.b;
}

// Multiply the tiles, from quads to quads.
__device__ __forceinline__ void load_quads(const float* from, int step, float (&to)[kEach]) {
  ROSE_UNROLL()
  for (int q = 0; q < 2; ++q) {
    const float4 quad = *reinterpret_cast<const float4*>(from + q * step);
    to[4 * q] = quad.x, to[4 * q + 1] = quad.y, to[4 * q + 2] = quad.z, to[4 * q + 3] = quad.w;
  }
}

/// a and b point to the thread's first row and column in line 0 of the tiles.
template <int kLines, int kPitchA, int kPitchB, int kRowStep, int kColumnStep>
__device__ __forceinline__ void multiply(const float* a, const float* b,
                                         float (&sum)[kEach][kEach]) {
  ROSE_UNROLL()
  for (int t = 0; t < kLines; ++t) {
    float of_a[kEach], of_b[kEach];
    load_quads(a + t * kPitchA, kRowStep, of_a);
    load_quads(b + t * kPitchB, kColumnStep, of_b);
    ROSE_UNROLL()
    for (int j = 0; j < kEach; ++j) {
      ROSE_UNROLL()
      for (int l = 0; l < kEach; ++l) sum[j][l] = __fmaf_rn(of_a[j], of_b[l], sum[j][l]);
    }
  }
}

template <int kRowStep, int kColumnStep>
__device__ __forceinline__ void store(const Product& p, int row, int column,
                                      const float (&sum)[kEach][kEach]) {
  ROSE_UNROLL()
  for (int j = 0; j < kEach; ++j) {
    const int r = row + j / 4 * kRowStep + j % 4;
    ROSE_UNROLL()
    for (int q = 0; q < 2; ++q) {
      const int c = column + q * kColumnStep;
      if (r < p.m && c < p.n) {
        *reinterpret_cast<float4*>(p.row_of_c(r) + c) =
            make_float4(sum[j][4 * q], sum[j][4 * q + 1], sum[j][4 * q + 2], sum[j][4 * q + 3]);
      }
    }
  }
}

// Load and store quads: neighbours, or half a tile apart.
template <int kStep>  // from a thread's first quad to its second
__global__ void __launch_bounds__(kThreads) vector_kernel(Product p) {
  __shared__ __align__(16) float a[kDepth * kPitch], b[kDepth * kTile];
  constexpr int unit = kStep == 4 ? 8 : 4;  // from one thread's first quad to the next thread's
  const int thread = static_cast<int>(threadIdx.x);
  const int top = static_cast<int>(blockIdx.y) * kTile, left = static_cast<int>(blockIdx.x) * kTile;
  const int row = thread / kAcross * unit, column = thread % kAcross * unit;
  float sum[kEach][kEach] = {};
  for (int k = 0; k < p.k; k += kDepth) {
    put(fetch(p, top, left, k), a, b);
    __syncthreads();
    multiply<kDepth, kPitch, kTile, kStep, kStep>(a + row, b + column, sum);
    __syncthreads();
  }
  store<kStep, kStep>(p, top + row, left + column, sum);
}

// Fetch the next piece while multiplying this one.
template <bool kWarpTiles>
__global__ void __launch_bounds__(kThreads, 2) buffered_kernel(Product p) {
  __shared__ __align__(16) float a[2][kDepth * kPitch], b[2][kDepth * kTile];
  constexpr int row_step = kWarpTiles ? 16 : 64, column_step = kWarpTiles ? 32 : 64;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int top = static_cast<int>(blockIdx.y) * kTile, left = static_cast<int>(blockIdx.x) * kTile;
  const int row = kWarpTiles ? warp / 2 * 32 + lane / 8 * 4 : thread / kAcross * 4;
  const int column = kWarpTiles ? warp % 2 * 64 + lane % 8 * 4 : thread % kAcross * 4;
  float sum[kEach][kEach] = {};
  put(fetch(p, top, left, 0), a[0], b[0]);
  for (int k = 0, now = 0; k < p.k; k += kDepth, now ^= 1) {
    __syncthreads();
    const bool more = k + kDepth < p.k;
    Quads next{};
    if (more) next = fetch(p, top, left, k + kDepth);
    multiply<kDepth, kPitch, kTile, row_step, column_step>(a[now] + row, b[now] + column, sum);
    if (more) put(next, a[now ^ 1], b[now ^ 1]);
  }
  store<row_step, column_step>(p, top + row, left + column, sum);
}

// Copy several pieces ahead, past the registers.
__device__ __forceinline__ void copy_async_4(float* to, const float* from, bool there) {
  asm volatile(
      "cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(kernels::gpu::shared_address(to)),
      "l"(from), "r"(there ? 4 : 0)
      : "memory");
}

/// A tile of kRows x kColumns outputs, kLines of k in each of kStages buffers, a warp for 32 x 64 outputs.
template <int kRows, int kColumns, int kLines, int kStages>
struct Staged {
  static constexpr int warps_across = kColumns / 64, threads = kRows / 32 * warps_across * 32;
  static constexpr int pitch = kRows + 4, quads = kLines * kColumns / 4;
  static_assert(kRows * kLines % threads == 0);

  __device__ static void copy(const Product& p, int top, int left, int k, float* a, float* b) {
    const int thread = static_cast<int>(threadIdx.x);
    ROSE_UNROLL()
    for (int u = 0; u < kRows * kLines / threads; ++u) {
      const int at = thread + u * threads;
      const int r = at / kLines, i = at % kLines;
      const bool there = top + r < p.m && k + i < p.k;
      copy_async_4(a + i * pitch + r, there ? p.row_of_a(top + r) + k + i : p.a, there);
    }
    ROSE_UNROLL()
    for (int u = 0; u < (quads + threads - 1) / threads; ++u) {
      const int at = thread + u * threads;
      if (quads % threads != 0 && at >= quads) continue;
      const int i = at / (kColumns / 4), c = at % (kColumns / 4) * 4;
      const bool there = k + i < p.k && left + c < p.n;
      kernels::gpu::copy_async_16(kernels::gpu::shared_address(b + i * kColumns + c),
                                  there ? p.row_of_b(k + i) + left + c : p.b, there ? 16 : 0);
    }
  }
};

template <int kRows, int kColumns, int kLines, int kStages>
__global__ void __launch_bounds__(Staged<kRows, kColumns, kLines, kStages>::threads,
                                  512 / Staged<kRows, kColumns, kLines, kStages>::threads)
    staged_kernel(Product p) {
  using Of = Staged<kRows, kColumns, kLines, kStages>;
  __shared__ __align__(16) float a[kStages][kLines * Of::pitch], b[kStages][kLines * kColumns];
  p.take_piece(static_cast<int>(blockIdx.z));
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int top = static_cast<int>(blockIdx.y) * kRows,
            left = static_cast<int>(blockIdx.x) * kColumns;
  const int row = warp / Of::warps_across * 32 + lane / 8 * 4;
  const int column = warp % Of::warps_across * 64 + lane % 8 * 4;
  float sum[kEach][kEach] = {};
  for (int ahead = 0; ahead < kStages - 1; ++ahead) {
    Of::copy(p, top, left, ahead * kLines, a[ahead], b[ahead]);
    kernels::gpu::copy_async_commit();
  }
  for (int k = 0, step = 0; k < p.k; k += kLines, ++step) {
    kernels::gpu::copy_async_wait<kStages - 2>();
    __syncthreads();
    const int now = step % kStages, next = (step + kStages - 1) % kStages;
    const int ahead = k + (kStages - 1) * kLines;
    if (ahead < p.k) Of::copy(p, top, left, ahead, a[next], b[next]);
    kernels::gpu::copy_async_commit();  // an empty group counts, too
    multiply<kLines, Of::pitch, kColumns, 16, 32>(a[now] + row, b[now] + column, sum);
  }
  kernels::gpu::copy_async_wait<0>();
  store<16, 32>(p, top + row, left + column, sum);
}

// Launch a rung.
template <void (*kKernel)(Product), int kRows, int kColumns, int kUnit, bool kSwap = false>
void launch(const float* a, const float* b, float* c, std::int64_t m, std::int64_t n,
            std::int64_t k, dim3 block, gpu::Stream stream) {
  check_matmul(m, n, k, kUnit);
  if (m == 0 || n == 0) return;
  const Product p{a, b, c, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), k};
  const auto down = static_cast<unsigned>(ceil_div(m, kRows)),
             across = static_cast<unsigned>(ceil_div(n, kColumns));
  kKernel<<<kSwap ? dim3(down, across) : dim3(across, down), block, 0, to_cuda(stream)>>>(p);
  ROSE_LAUNCH_CHECK("matmul");
}

template <void (*kKernel)(Product), int kSide, int kThreadsX, int kThreadsY, int kUnit,
          bool kSwap = false>
void run(const float* a, const float* b, float* c, std::int64_t m, std::int64_t n, std::int64_t k,
         gpu::Stream stream) {
  launch<kKernel, kSide, kSide, kUnit, kSwap>(a, b, c, m, n, k, dim3(kThreadsX, kThreadsY), stream);
}

template <int kRows, int kColumns, int kLines, int kStages>
void run_staged(const float* a, const float* b, float* c, std::int64_t m, std::int64_t n,
                std::int64_t k, gpu::Stream stream) {
  using Of = Staged<kRows, kColumns, kLines, kStages>;
  launch<staged_kernel<kRows, kColumns, kLines, kStages>, kRows, kColumns, 4>(
      a, b, c, m, n, k, dim3(Of::threads), stream);
}

constexpr Rung<Matmul> ladder[] = {
    {"naive", "an output per thread, lanes below each other",
     run<one_kernel<false>, 32, 32, 32, 1, true>},
    {"coalesced", "lanes beside each other", run<one_kernel<true>, 32, 32, 32, 1>},
    {"shared tile", "each number fetched once per block", run<tile_kernel, 32, 32, 32, 1>},
    {"column", "eight outputs per thread", run<column_kernel, 64, 512, 1, 1>},
    {"square", "eight by eight outputs per thread", run<square_kernel, kTile, kThreads, 1, 1>},
    {"vector", "16 bytes per access, A turned and padded",
     run<vector_kernel<4>, kTile, kThreads, 1, 4>},
    {"apart", "quads without bank conflicts", run<vector_kernel<64>, kTile, kThreads, 1, 4>},
    {"two buffers", "fetches while it multiplies",
     run<buffered_kernel<false>, kTile, kThreads, 1, 4>},
    {"warp tiles", "a warp reads fewer different words",
     run<buffered_kernel<true>, kTile, kThreads, 1, 4>},
    {"stages", "asynchronous copies, three pieces ahead", run_staged<128, 128, 8, 4>},
};

constexpr Rung<Matmul> tiles[] = {
    {"128x128, 8 x 4", "as the last rung", run_staged<128, 128, 8, 4>},
    {"128x128, 16 x 2", "deeper, fewer", run_staged<128, 128, 16, 2>},
    {"64x128, 8 x 4", "smaller", run_staged<64, 128, 8, 4>},
    {"64x64, 16 x 3", "small", run_staged<64, 64, 16, 3>},
    {"256x128, 8 x 3", "tall", run_staged<256, 128, 8, 3>},
    {"128x256, 8 x 3", "wide", run_staged<128, 256, 8, 3>},
};

// Add the pieces in ascending order.
__global__ void add_pieces_kernel(const float* parts, float* c, std::int64_t size, int pieces) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= size) return;
  float sum = parts[i];
  for (int piece = 1; piece < pieces; ++piece) sum += parts[piece * size + i];
  c[i] = sum;
}

}  // namespace

Rungs<Matmul> matmul_ladder() {
  return ladder;
}
Rungs<Matmul> matmul_tiles() {
  return tiles;
}

// Multiply in pieces.
void matmul_split(const float* a, const float* b, float* c, std::int64_t m, std::int64_t n,
                  std::int64_t k, std::int64_t pieces, gpu::Workspace workspace,
                  gpu::Stream stream) {
  if (pieces < 1 || pieces > 64) gpu::bad_argument("pieces", "1 to 64");
  check_matmul(m, n, k, 4);
  if (k % (4 * pieces) != 0) gpu::bad_argument("k", "no multiple of four times the pieces");
  if (m == 0 || n == 0) return;
  gpu::check_workspace(workspace, static_cast<std::size_t>(pieces * m * n) * sizeof(float));
  auto* const parts = static_cast<float*>(workspace.data);
  const Product p{
      a, b, parts, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k / pieces), k};
  const dim3 grid(static_cast<unsigned>(ceil_div(n, kTile)),
                  static_cast<unsigned>(ceil_div(m, kTile)), static_cast<unsigned>(pieces));
  staged_kernel<kTile, kTile, 8, 4>
      <<<grid, Staged<kTile, kTile, 8, 4>::threads, 0, to_cuda(stream)>>>(p);
  ROSE_LAUNCH_CHECK("matmul, pieces");
  add_pieces_kernel<<<static_cast<unsigned>(ceil_div(m * n, kThreads)), kThreads, 0,
                      to_cuda(stream)>>>(parts, c, m * n, static_cast<int>(pieces));
  ROSE_LAUNCH_CHECK("matmul, sum of pieces");
}

}  // namespace rose::labs
