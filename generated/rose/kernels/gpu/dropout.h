// Leave some numbers out, on a GPU.

#pragma once

#include "rose/kernels/dropout.h"
#include "rose/kernels/gpu/stream.h"

namespace rose::kernels::gpu {

/// kernels::dropout of a matrix, whose element (r, c) is number r * cols + c; each result is rounded once. Both are f32, bf16 or
/// f16, alike; out may be x.
void dropout(const Matrix& x, const Dropout& how, const Matrix& out, Stream stream);

}  // namespace rose::kernels::gpu
