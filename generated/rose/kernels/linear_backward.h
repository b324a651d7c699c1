// Go back through a linear layer.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rose/core/parallel.h"
#include "rose/kernels/view.h"

namespace rose::kernels {

/// What becomes of the values already in a gradient of an activation.
enum class Into : std::uint8_t { overwrite, add };

/// dx[m, k] = sum over n of dy[m, n] * w[n, k]; dy is [M, N], w [N, K] in fp32, dx [M, K].
/// The sum over n runs in blocks of 256, each an ascending fused chain. scratch grows to hold w packed.
void linear_backward_input(std::span<const float> dy, std::int64_t m, const MatrixView& w,
                           std::span<float> dx, Into into, core::ThreadPool& pool,
                           std::vector<float>& scratch);

/// dw[n, k] += sum over m of dy[m, n] * x[m, k], and db[n] += sum over m of dy[m, n].
/// x is [M, K], dy [M, N], dw [N, K], db [N] or empty. Sums over m in blocks of 256, each ascending
/// from zero. scratch grows to hold x packed.
void linear_backward_weight(std::span<const float> x, std::span<const float> dy, std::int64_t m,
                            std::span<float> dw, std::span<float> db, core::ThreadPool& pool,
                            std::vector<float>& scratch);

}  // namespace rose::kernels
