// Turn rows of blocks into floats and back.

#pragma once

#include <cstdint>

#include "rose/kernels/dtype.h"

namespace rose::kernels {

/// Decodes n weights of one row, n a multiple of the type's block. Bit-identical to the reference
/// decoder of GGUF: fp32, one rounding per operation. Plain floats are converted, so that every
/// weight type can be read this way.
void dequantize_row(DType type, const void* row, float* out, std::int64_t n);

/// Whether quantize_row can write the type: f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1.
bool can_quantize(DType type);

/// Encodes n weights, n a multiple of the type's block, exactly as the reference encoder does.
/// Throws core::Error for values that no block can hold: not finite, or so large that their scale
/// overflows half precision.
void quantize_row(DType type, const float* values, void* row, std::int64_t n);

}  // namespace rose::kernels
