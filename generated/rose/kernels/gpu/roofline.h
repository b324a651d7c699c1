// Bound a kernel's time from below by what it computes and what it moves.

#pragma once

#include <algorithm>

namespace rose::kernels::gpu {

/// What a kernel must do, whatever its code.
struct Cost {
  double flops = 0;  ///< a multiplication and an addition count as two
  double bytes = 0;  ///< each input once, each output once
};

/// What a machine can do, per second.
struct Ceilings {
  double flops = 0;
  double bytes = 0;
};

/// The time, in microseconds, that no kernel undercuts.
inline double floor_us(const Cost& cost, const Ceilings& ceilings) {
  return 1e6 * std::max(cost.flops / ceilings.flops, cost.bytes / ceilings.bytes);
}

/// y[M, N] = x[M, K] w[N, K]^T, with elements of `in` bytes read and of `out` bytes written.
inline Cost linear_cost(double m, double n, double k, double in, double out) {
  return {.flops = 2 * m * n * k, .bytes = in * (n * k + m * k) + out * m * n};
}

}  // namespace rose::kernels::gpu
