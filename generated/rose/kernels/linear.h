// Multiply activations by a weight matrix of any storage type.

#pragma once

#include <cstdint>
#include <span>

#include "rose/core/parallel.h"
#include "rose/kernels/view.h"

namespace rose::kernels {

/// One of the matrices that read the same activations, and where its product goes.
struct Projection {
  MatrixView w;                 ///< [N, K] in any dtype
  const float* bias = nullptr;  ///< [N] or null
  std::span<float> y;           ///< [M, N]
};

/// y[m, n] = sum over k of x[m, k] * w[n, k], plus bias[n].
/// x is [M, K] and y is [M, N], fp32, row-major; w is [N, K] in any dtype; bias is [N] or null.
/// The bits of a row of y depend on that row of x, on w and on bias alone: neither M nor the number of threads shows.
/// Allocates nothing. Throws core::Error (invalid_argument) when a span does not fit its shape.
void linear(std::span<const float> x, std::int64_t m, const MatrixView& w, const float* bias,
            std::span<float> y, core::ThreadPool& pool);

/// The same for several matrices at once: queries, keys and values; gate and up.
void linear(std::span<const float> x, std::int64_t m, std::span<const Projection> projections,
            core::ThreadPool& pool);

/// x += y, elementwise: the residual connection.
void add(std::span<float> x, std::span<const float> y, core::ThreadPool& pool);

}  // namespace rose::kernels
