// Name the rungs, and say what each does.

#pragma once

#include <cstdint>

#include "labs/gpu/rung.h"

namespace rose::labs {

/// out[c * rows + r] = in[r * cols + c], for 0 <= r < rows and 0 <= c < cols. Device pointers; `in` and `out` do not overlap.
using Transpose = void(const float* in, float* out, std::int64_t rows, std::int64_t cols,
                       gpu::Stream stream);

/// From naive to fast. The last takes sizes that are multiples of four and throws core::Error
/// (invalid_argument) for others.
Rungs<Transpose> transpose_ladder();

}  // namespace rose::labs
