// Turn each row into probabilities.

#pragma once

#include <cstdint>
#include <span>

#include "rose/core/parallel.h"

namespace rose::kernels {

/// y[r, i] = exp(x[r, i]) / sum over j of exp(x[r, j]); x and y are [R, C], y may be x. -inf gives 0; a row that holds NaN or
/// +inf, or nothing but -inf, gives NaN.
void softmax(std::span<const float> x, std::int64_t rows, std::span<float> y,
             core::ThreadPool& pool);

}  // namespace rose::kernels
