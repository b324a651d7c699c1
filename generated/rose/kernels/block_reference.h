// Read a block as integers, and multiply it plainly.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "rose/kernels/view.h"

namespace rose::kernels {

/// Thirty-two weights of one row: x = scale (q - offset) + minimum, with one scale per sixteen.
struct BlockCodes {
  std::int32_t q[32];
  std::int32_t offset;
  float scale[2];
  float minimum;
};

/// Block b, of thirty-two weights, of a row of any block type.
BlockCodes read_codes(DType dtype, const std::byte* row, std::int64_t b);

namespace reference {

/// One output of the product with a matrix of blocks: the readable twin of the panels' kernels.
float block_dot(std::span<const float> x, DType dtype, const std::byte* row);

}  // namespace reference
}  // namespace rose::kernels
