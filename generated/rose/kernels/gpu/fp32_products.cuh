// Two products in fp32, rows by rows and weights by rows.

#pragma once

#include "rose/kernels/gpu/attention.cuh"
#include "rose/kernels/gpu/cuda.cuh"

namespace rose::kernels::gpu {

/// Rows of D numbers in shared memory lie this far apart: 16 bytes more than a row, so that eight rows' chunks lie in different banks.
template <int D>
inline constexpr int fp32_pitch = D + 4;

/// sums[r][c] = row r of a times row lane + 32 c of b: one chain of fma, ascending.
template <int D, int R, int C>
__device__ __forceinline__ void multiply_rows(float (&sums)[R][C], const float* a, const float* b) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  ROSE_UNROLL()
  for (int r = 0; r < R; ++r) {
    ROSE_UNROLL()
    for (int c = 0; c < C; ++c) sums[r][c] = 0.0f;
  }
  ROSE_UNROLL(4)
  for (int d = 0; d < D; d += 4) {
    float4 right[C];
    ROSE_UNROLL()
    for (int c = 0; c < C; ++c) {
      right[c] = *reinterpret_cast<const float4*>(b + (lane + 32 * c) * fp32_pitch<D> + d);
    }
    ROSE_UNROLL()
    for (int r = 0; r < R; ++r) {
      const float4 left = *reinterpret_cast<const float4*>(a + r * fp32_pitch<D> + d);
      ROSE_UNROLL()
      for (int c = 0; c < C; ++c) {
        sums[r][c] = fmaf(left.x, right[c].x, sums[r][c]);
        sums[r][c] = fmaf(left.y, right[c].y, sums[r][c]);
        sums[r][c] = fmaf(left.z, right[c].z, sums[r][c]);
        sums[r][c] = fmaf(left.w, right[c].w, sums[r][c]);
      }
    }
  }
}

// Add rows, weighted.

/// sums[r][i] += weight of row r for j, times number lane + 32 i of row j of b, for j ascending to `count` (a multiple of 4).
template <int D, int R>
__device__ __forceinline__ void add_rows(float (&sums)[R][D / 32], const float* weights, int pitch,
                                         const float* b, int count) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int j = 0; j < count; j += 4) {
    float4 weight[R];
    ROSE_UNROLL()
    for (int r = 0; r < R; ++r) {
      weight[r] = *reinterpret_cast<const float4*>(weights + r * pitch + j);
    }
    ROSE_UNROLL()
    for (int i = 0; i < D / 32; ++i) {
      const float* const column = b + j * fp32_pitch<D> + lane + 32 * i;
      const float value[4] = {column[0], column[fp32_pitch<D>], column[2 * fp32_pitch<D>],
                              column[3 * fp32_pitch<D>]};
      ROSE_UNROLL()
      for (int r = 0; r < R; ++r) {
        sums[r][i] = fmaf(weight[r].x, value[0], sums[r][i]);
        sums[r][i] = fmaf(weight[r].y, value[1], sums[r][i]);
        sums[r][i] = fmaf(weight[r].z, value[2], sums[r][i]);
        sums[r][i] = fmaf(weight[r].w, value[3], sums[r][i]);
      }
    }
  }
}

// Bring rows of fp32 numbers.

/// Rows of D numbers to shared memory, by all threads of the block; row_of(j) says which, -1: zeros.
template <int D, int Threads, class RowOf>
__device__ __forceinline__ void fetch_fp32(float* to, const float* from, std::int64_t stride,
                                           int rows, const RowOf& row_of) {
  constexpr int chunks = D / 4;
  for (int c = static_cast<int>(threadIdx.x); c < rows * chunks; c += Threads) {
    const int j = c / chunks, d = c % chunks * 4;
    const std::int64_t row = row_of(j);
    copy_async_16(shared_address(to + j * fp32_pitch<D> + d),
                  from + (row < 0 ? 0 : row) * stride + d, row < 0 ? 0 : 16);
  }
  copy_async_commit();
}

}  // namespace rose::kernels::gpu
