// Look up a row for each token, and go back, on a GPU.

#pragma once

#include <cstddef>
#include <cstdint>

#include "rose/kernels/gpu/stream.h"

namespace rose::kernels::gpu {

/// out[t] = row ids[t] of table [V, C]; out is [ids, C]; each is f32, bf16 or f16. An id outside [0, V) gives a row of NaN.
void embedding(const std::int32_t* ids, const Matrix& table, const Matrix& out, Stream stream);

/// Bytes that embedding_backward needs for so many tokens. Throws unsupported in a build without CUDA.
std::size_t embedding_backward_workspace(std::int64_t tokens);

/// dtable[ids[t], c] += dy[t, c], in ascending t, in fp32; dtable is [V, C] f32, dy [T, C] f32, bf16 or f16. Ids outside [0, V) add
/// nothing. Bit for bit kernels::embedding_backward.
void embedding_backward(const std::int32_t* ids, const Matrix& dy, const Matrix& dtable,
                        Workspace workspace, Stream stream);

}  // namespace rose::kernels::gpu
