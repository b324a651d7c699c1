// Climb the ladder.

#include "labs/gpu/transpose.h"
#include "rose/kernels/gpu/cuda.cuh"
#include "rose/kernels/gpu/group.cuh"

namespace rose::labs {
namespace {

using kernels::gpu::ceil_div;
using kernels::gpu::to_cuda;

constexpr int kTile = 32;  // a warp along a row of a tile
constexpr int kLines = 8;  // rows of threads in a block

dim3 tiles(std::int64_t rows, std::int64_t cols, int side) {
  return {static_cast<unsigned>(ceil_div(cols, side)), static_cast<unsigned>(ceil_div(rows, side))};
}

// Read a row, write a column.
__global__ void naive_kernel(const float* in, float* out, std::int64_t rows, std::int64_t cols) {
  const std::int64_t c = std::int64_t{blockIdx.x} * kTile + threadIdx.x;
  for (int line = static_cast<int>(threadIdx.y); line < kTile; line += kLines) {
    const std::int64_t r = std::int64_t{blockIdx.y} * kTile + line;
    if (r < rows && c < cols) out[c * rows + r] = in[r * cols + c];
  }
}

// Turn a tile in shared memory, with or without padding.
template <int kPadding>
__global__ void tiled_kernel(const float* in, float* out, std::int64_t rows, std::int64_t cols) {
  __shared__ float tile[kTile][kTile + kPadding];
  const std::int64_t top = std::int64_t{blockIdx.y} * kTile,
                     left = std::int64_t{blockIdx.x} * kTile;
  const int lane = static_cast<int>(threadIdx.x);
  for (int line = static_cast<int>(threadIdx.y); line < kTile; line += kLines) {
    if (top + line < rows && left + lane < cols)
      tile[line][lane] = in[(top + line) * cols + left + lane];
  }
  __syncthreads();
  for (int line = static_cast<int>(threadIdx.y); line < kTile; line += kLines) {
    if (left + line < cols && top + lane < rows)
      out[(left + line) * rows + top + lane] = tile[lane][line];
  }
}

// Permute the columns of a tile by the number of the row.
__global__ void swizzled_kernel(const float* in, float* out, std::int64_t rows, std::int64_t cols) {
  __shared__ float tile[kTile][kTile];
  const std::int64_t top = std::int64_t{blockIdx.y} * kTile,
                     left = std::int64_t{blockIdx.x} * kTile;
  const int lane = static_cast<int>(threadIdx.x);
  for (int line = static_cast<int>(threadIdx.y); line < kTile; line += kLines) {
    if (top + line < rows && left + lane < cols)
      tile[line][lane ^ line] = in[(top + line) * cols + left + lane];
  }
  __syncthreads();
  for (int line = static_cast<int>(threadIdx.y); line < kTile; line += kLines) {
    if (left + line < cols && top + lane < rows)
      out[(left + line) * rows + top + lane] = tile[lane][line ^ lane];
  }
}

// Move groups of four.
constexpr int kWide = 64, kGroup = 4, kWideThreads = 256;
constexpr int kGroupsOfRow = kWide / kGroup;                          // 16
constexpr int kGroupsOfThread = kWide * kGroupsOfRow / kWideThreads;  // 4

/// The word of a tile at which group `group` of a row starts.
__device__ int place(int row, int group) {
  return row * kWide + (group ^ (row / kGroup % 8)) * kGroup;
}

__global__ void __launch_bounds__(kWideThreads)
    wide_kernel(const float* in, float* out, std::int64_t rows, std::int64_t cols) {
  __shared__ __align__(16) float tile[kWide * kWide];
  const std::int64_t top = std::int64_t{blockIdx.y} * kWide,
                     left = std::int64_t{blockIdx.x} * kWide;
  const int thread = static_cast<int>(threadIdx.x);
  float4 held[kGroupsOfThread];
  ROSE_UNROLL()
  for (int i = 0; i < kGroupsOfThread; ++i) {
    const int row = thread / kGroupsOfRow + i * (kWideThreads / kGroupsOfRow);
    const int group = thread % kGroupsOfRow;
    if (top + row < rows && left + group * kGroup < cols) {
      held[i] =
          __ldcs(reinterpret_cast<const float4*>(in + (top + row) * cols + left + group * kGroup));
    }
  }
  ROSE_UNROLL()
  for (int i = 0; i < kGroupsOfThread; ++i) {
    const int row = thread / kGroupsOfRow + i * (kWideThreads / kGroupsOfRow);
    *reinterpret_cast<float4*>(tile + place(row, thread % kGroupsOfRow)) = held[i];
  }
  __syncthreads();
  const int lane = thread % 32, warp = thread / 32;
  ROSE_UNROLL()
  for (int i = 0; i < kGroupsOfThread; ++i) {
    const int unit =
        warp + i * (kWideThreads / 32);  // 32 units: 16 groups of columns, two halves of rows
    const int column = unit / 2 * kGroup + lane / 8;
    const int row = (unit % 2 * 8 + lane % 8) * kGroup;
    if (left + column >= cols || top + row >= rows) continue;
    float of[kGroup];
    ROSE_UNROLL()
    for (int e = 0; e < kGroup; ++e) {
      of[e] = tile[place(row + e, column / kGroup) + column % kGroup];
    }
    __stcs(reinterpret_cast<float4*>(out + (left + column) * rows + top + row),
           make_float4(of[0], of[1], of[2], of[3]));
  }
}

// Launch a rung.
using Kernel = void(const float*, float*, std::int64_t, std::int64_t);

template <Kernel* kKernel>
void by_tiles(const float* in, float* out, std::int64_t rows, std::int64_t cols,
              gpu::Stream stream) {
  if (rows == 0 || cols == 0) return;
  kKernel<<<tiles(rows, cols, kTile), dim3(kTile, kLines), 0, to_cuda(stream)>>>(in, out, rows,
                                                                                 cols);
  ROSE_LAUNCH_CHECK("transpose");
}

void by_groups(const float* in, float* out, std::int64_t rows, std::int64_t cols,
               gpu::Stream stream) {
  if (rows % kGroup != 0) gpu::bad_argument("rows", "this rung needs a multiple of four");
  if (cols % kGroup != 0) gpu::bad_argument("cols", "this rung needs a multiple of four");
  if (rows == 0 || cols == 0) return;
  wide_kernel<<<tiles(rows, cols, kWide), kWideThreads, 0, to_cuda(stream)>>>(in, out, rows, cols);
  ROSE_LAUNCH_CHECK("transpose");
}

constexpr Rung<Transpose> ladder[] = {
    {"naive", "reads a row, writes a column", by_tiles<naive_kernel>},
    {"tile", "turns a tile in shared memory", by_tiles<tiled_kernel<0>>},
    {"padding", "a word more per row: no bank conflicts", by_tiles<tiled_kernel<1>>},
    {"swizzle", "exclusive or in place of padding", by_tiles<swizzled_kernel>},
    {"groups", "16 bytes per access, four on the way", by_groups},
};

}  // namespace

Rungs<Transpose> transpose_ladder() {
  return ladder;
}

}  // namespace rose::labs
