// What attention, forward and backward, and its cache refuse.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "rose/kernels/attention.h"
#include "rose/kernels/gpu/stream.h"

/// Each throws core::Error that names the argument.
namespace rose::kernels::gpu::attention_arguments {

/// There are kernels for 64, 96, 128 and 256, in bf16, f16 and f32.
void check_shape(const AttentionShape& shape);
void check_dtype(DType dtype, std::string_view argument);
void check_offsets(std::span<const std::int32_t> row_offsets);
/// Kernels copy 16 bytes at a time, so rows begin at multiples of that.
void check_rows(const Matrix& m, std::string_view argument, std::int64_t rows, std::int64_t cols,
                DType dtype);

/// Parts of a workspace begin at multiples of 256 bytes.
std::size_t aligned(std::size_t bytes);
/// scale * log2(e): exponents are to base 2.
float base_2_factor(float scale);

}  // namespace rose::kernels::gpu::attention_arguments
