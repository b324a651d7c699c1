// Multiply by weights of few bits, and by a weight for each group of rows.

#pragma once

#include <cstdint>

#include "rose/kernels/gpu/stream.h"

namespace rose::kernels::gpu {

enum class WeightFormat : std::uint8_t { int8, int4, fp8_e4m3 };

/// A weight [rows, cols] of few bits, in device memory. w[n, k] = bf16((q[n, k] - zeros[n, k / group]) * scales[n, k / group]).
struct PackedWeight {
  const void* data =
      nullptr;  ///< row-major; int4: the even k in the low half of a byte, from 0 to 15
  WeightFormat format = WeightFormat::int8;
  std::int64_t rows = 0, cols = 0;      ///< cols is a multiple of 16 (int8, fp8) or 32 (int4)
  const float* scales = nullptr;        ///< [rows, ceil(cols / group)]
  std::int64_t group = 0;               ///< a multiple of 32; 0: one scale for each row
  const std::uint8_t* zeros = nullptr;  ///< int4: as the scales; null: all 8. Else: null, 0
};

/// y[M, N] = x[M, K] w[N, K]^T, plus bias[N] unless null. x, y and the bias are bf16, rows of x begin at multiples of 16 bytes. The
/// bits are those of `linear` with the unpacked weight. Throws core::Error naming the argument.
void linear_packed(const Matrix& x, const PackedWeight& w, const void* bias, const Matrix& y,
                   Stream stream);

/// Adapters of a batch whose rows are sorted by adapter. All pointers are to device memory; rank is a multiple of 8.
struct Adapters {
  const void* const* a = nullptr;  ///< [count] to [rank, K] bf16; null: these rows have none
  const void* const* b = nullptr;  ///< [count] to [N, rank] bf16
  const float* scales = nullptr;   ///< [count]
  const std::int32_t* offsets =
      nullptr;  ///< [count + 1]: rows of group i are offsets[i] to offsets[i + 1]
  std::int64_t count = 0, rank = 0;
};

/// Bytes that `add_adapters` needs for M rows.
std::size_t adapters_workspace(std::int64_t m, std::int64_t rank);

/// y += scale * (x A^T) B^T, by group, each of the four operations rounded to bf16. x [M, K] and y [M, N] are bf16.
void add_adapters(const Matrix& x, const Adapters& adapters, const Matrix& y, Workspace workspace,
                  Stream stream);

}  // namespace rose::kernels::gpu
