// Go back through a table lookup.

#pragma once

#include <cstdint>
#include <span>

#include "rose/core/parallel.h"

namespace rose::kernels {

/// dtable[ids[t], c] += dy[t, c], in ascending t; dtable is [V, C], dy [T, C].
/// Throws core::Error (out_of_range) for an id outside [0, V).
void embedding_backward(std::span<const std::int32_t> ids, std::span<const float> dy,
                        std::span<float> dtable, std::int64_t columns, core::ThreadPool& pool);

}  // namespace rose::kernels
