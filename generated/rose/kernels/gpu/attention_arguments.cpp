// Refuse shapes and types that no kernel takes.

#include "rose/kernels/gpu/attention_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "rose/core/error.h"

namespace rose::kernels::gpu::attention_arguments {

void check_shape(const AttentionShape& shape) {
  if (shape.heads <= 0 || shape.kv_heads <= 0 || shape.heads % shape.kv_heads != 0 ||
      shape.kv_heads > std::numeric_limits<std::uint16_t>::max()) {
    bad_argument("shape", fmt::format("{} query heads do not divide over {} key-value heads",
                                      shape.heads, shape.kv_heads));
  }
  if (shape.head_dim != 64 && shape.head_dim != 96 && shape.head_dim != 128 &&
      shape.head_dim != 256) {
    throw core::Error(core::Code::unsupported,
                      fmt::format("attention on a GPU with heads of {}", shape.head_dim))
        .in("shape")
        .hint("there are kernels for 64, 96, 128 and 256");
  }
  if (!(shape.scale > 0.0f) || !std::isfinite(shape.scale)) {
    bad_argument("shape",
                 fmt::format("a scale of {}, where a positive one is needed", shape.scale));
  }
}

void check_dtype(DType dtype, std::string_view argument) {
  if (dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f32) return;
  throw core::Error(core::Code::unsupported,
                    fmt::format("attention on a GPU in {}", info(dtype).name))
      .in(std::string(argument))
      .hint("there are kernels for bf16, f16 and f32");
}

// Refuse offsets that do not ascend, and rows that cannot be copied.
void check_offsets(std::span<const std::int32_t> row_offsets) {
  if (row_offsets.empty() || row_offsets.front() != 0 ||
      !std::is_sorted(row_offsets.begin(), row_offsets.end())) {
    bad_argument("row_offsets", "offsets must ascend from 0");
  }
}

void check_rows(const Matrix& m, std::string_view argument, std::int64_t rows, std::int64_t cols,
                DType dtype) {
  check_matrix(m, argument, rows, cols, dtype);
  constexpr std::uintptr_t unit = 16;
  const std::int64_t lanes = dtype == DType::f32 ? 4 : 8;
  if (reinterpret_cast<std::uintptr_t>(m.data) % unit != 0 || m.row_stride() % lanes != 0) {
    bad_argument(argument, "rows must begin at multiples of 16 bytes");
  }
}

std::size_t aligned(std::size_t bytes) {
  constexpr std::size_t alignment = 256;
  return (bytes + alignment - 1) / alignment * alignment;
}

float base_2_factor(float scale) {
  constexpr double log2_of_e = 1.44269504088896340736;
  return static_cast<float>(static_cast<double>(scale) * log2_of_e);
}

}  // namespace rose::kernels::gpu::attention_arguments
