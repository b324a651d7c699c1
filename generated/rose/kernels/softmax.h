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

/// dx[r, i] = y[r, i] (dy[r, i] - sum over j of y[r, j] dy[r, j]) for y = softmax(x); dx may be y or dy.
void softmax_backward(std::span<const float> y, std::span<const float> dy, std::int64_t rows,
                      std::span<float> dx, core::ThreadPool& pool);

}  // namespace rose::kernels
