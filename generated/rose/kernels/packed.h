// Pack a matrix, and say what the bits stand for.

#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "rose/core/parallel.h"
#include "rose/kernels/gpu/linear_packed.h"
#include "rose/kernels/view.h"

namespace rose::kernels {

/// A matrix of few bits in host memory: each array as gpu::PackedWeight has it.
struct PackedMatrix {
  gpu::WeightFormat format = gpu::WeightFormat::int8;
  std::int64_t rows = 0, cols = 0;
  std::int64_t group = 0;  ///< columns that share a scale; 0: all of a row
  std::vector<std::uint8_t> data;
  std::vector<float> scales;        ///< [rows, groups()]
  std::vector<std::uint8_t> zeros;  ///< int4: [rows, groups()], or empty: all 8

  std::int64_t group_size() const { return group == 0 ? cols : group; }
  std::int64_t groups() const;
  std::int64_t row_bytes() const;
  std::int64_t bytes() const;  ///< of the arrays
};

/// "int8", "int4" or "fp8".
std::string_view name(gpu::WeightFormat format);

/// Whether the GPU kernels take a matrix with such columns.
bool can_pack(gpu::WeightFormat format, std::int64_t cols, std::int64_t group);

/// The nearest numbers of the format, with the scale of each group chosen for a small squared error. Throws core::Error
/// (invalid_argument) for columns that cannot be packed and for a weight that is not finite.
PackedMatrix pack_matrix(const MatrixView& w, gpu::WeightFormat format, std::int64_t group,
                         core::ThreadPool& pool);

/// What a row stands for: cols floats, each of which is a bf16.
void unpack_row(const PackedMatrix& w, std::int64_t row, float* out);

}  // namespace rose::kernels
