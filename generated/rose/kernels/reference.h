// The readable twins: same order, same roundings, one number at a time. Tests and readers use them.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <span>

#include "rose/kernels/numerics.h"

namespace rose::kernels::reference {

/// Lane j of sixteen adds what belongs to k = j mod 16; then lane i takes lane i + 8, i + 4, i + 2, i + 1.
inline float tree(std::array<float, numerics::lanes> lane) {
  for (std::size_t half = numerics::lanes / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lane[i] += lane[i + half];
  }
  return lane[0];
}

inline float dot(std::span<const float> a, std::span<const float> b) {
  std::array<float, numerics::lanes> lane{};
  for (std::size_t k = 0; k < a.size(); ++k) {
    lane[k % numerics::lanes] = std::fma(a[k], b[k], lane[k % numerics::lanes]);
  }
  return tree(lane);
}

}  // namespace rose::kernels::reference
