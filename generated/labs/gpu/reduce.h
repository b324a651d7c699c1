// Name the rungs, and say what each does.

#pragma once

#include <cstddef>
#include <cstdint>

#include "labs/gpu/rung.h"

namespace rose::labs {

/// *out = the sum of in[0] … in[count - 1], 0 for none, in an order that depends on the rung and on nothing else. Device pointers,
/// `in` aligned to 16 bytes; `workspace` has reduce_workspace(count) bytes.
using Reduce = void(const float* in, std::int64_t count, float* out, gpu::Workspace workspace,
                    gpu::Stream stream);

Rungs<Reduce> reduce_ladder();
/// CUB's, from the CUDA Toolkit.
Reduce* reduce_library();

/// Enough for any rung and for the library. Throws core::Error (invalid_argument) for a negative count.
std::size_t reduce_workspace(std::int64_t count);

}  // namespace rose::labs
