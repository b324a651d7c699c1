#pragma once

#include <cstdint>

#include "rose/kernels/dtype.h"

namespace rose::kernels {

/// out[i] = element first + i of the row, exactly; first is a multiple of the type's block.
/// Throws core::Error (unsupported) for a type that no decoder is known for.
void expand_row(DType dtype, const void* row, std::int64_t first, std::int64_t count, float* out);

}  // namespace rose::kernels
