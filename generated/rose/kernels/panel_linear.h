// Multiply activations by matrices in panels.

#pragma once

#include <cstdint>
#include <span>

#include "rose/core/parallel.h"
#include "rose/kernels/linear.h"

namespace rose::kernels {

/// y = x w^T + bias for those of the projections that have panels; the others are left alone.
/// The bits of a row of y depend on that row of x, on w and on bias alone. Each thread that calls this keeps the
/// memory for its activations, which grows with the largest call.
void panel_linear(std::span<const float> x, std::int64_t m, std::span<const Projection> projections,
                  core::ThreadPool& pool);

}  // namespace rose::kernels
