// Look up rows of a tensor.

#pragma once

#include <ATen/core/Tensor.h>

namespace rose::kernels::autograd {

/// out[t] = table[ids[t]]: ids int32 [T], table [V, C], out [T, C] of the type of the table; on a CPU out is f32. An id outside the
/// table is an error on a CPU, and a row of NaN on a GPU.
at::Tensor embedding(const at::Tensor& ids, const at::Tensor& table);

}  // namespace rose::kernels::autograd
