// Warm up linearly, then fall along half a cosine.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace rose::trainer {

struct Schedule {
  std::int64_t steps = 0, warmup = 0;
  double peak = 1e-3, last = 1e-4;

  /// The rate of step t, counted from 0.
  double rate(std::int64_t t) const {
    if (t < warmup) return peak * static_cast<double>(t + 1) / static_cast<double>(warmup);
    const auto whole = static_cast<double>(std::max<std::int64_t>(1, steps - warmup));
    const double done = std::min(1.0, static_cast<double>(t - warmup) / whole);
    return last + 0.5 * (peak - last) * (1.0 + std::cos(std::numbers::pi * done));
  }
};

}  // namespace rose::trainer
