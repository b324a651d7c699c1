// Look up a row for each token.

#pragma once

#include <cstdint>
#include <span>

#include "rose/core/parallel.h"
#include "rose/kernels/view.h"

namespace rose::kernels {

/// out[t] = row ids[t] of table [V, C], as fp32; out is [T, C].
/// Throws core::Error (out_of_range) for an id outside [0, V).
void embedding(std::span<const std::int32_t> ids, const MatrixView& table, std::span<float> out,
               core::ThreadPool& pool);

}  // namespace rose::kernels
