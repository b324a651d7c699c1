// Add sixteen products to an accumulator as a tensor core does.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace rose::kernels {

/// How a generation of tensor cores adds.
struct TensorCore {
  int terms = 16;      ///< products that are added at once
  int extra_bits = 2;  ///< kept below the last bit of the largest addend
};

namespace tensor_core {

/// The exponent by which a number is stored: that of its leading bit, or the smallest for subnormal numbers.
inline int exponent(float x) {
  constexpr int smallest = -126;
  return x == 0.0f ? std::numeric_limits<int>::min() / 4 : std::max(std::ilogb(x), smallest);
}

/// x without the bits below the last of 24: towards zero.
inline float cut_to_float(double x) {
  const auto nearest = static_cast<float>(x);
  if (std::abs(static_cast<double>(nearest)) <= std::abs(x)) return nearest;
  return std::nextafter(nearest, 0.0f);
}

}  // namespace tensor_core

/// c + a[0] b[0] + … for finite values of 16-bit types. a and b have the same size, at most core.terms.
inline float tensor_core_step(float c, std::span<const float> a, std::span<const float> b,
                              const TensorCore& core = {}) {
  int top = tensor_core::exponent(c);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] != 0 && b[i] != 0) {
      top = std::max(top, tensor_core::exponent(a[i]) + tensor_core::exponent(b[i]));
    }
  }
  constexpr int fraction = 23;
  const int unit = top - fraction - core.extra_bits;  // the exponent of the last bit that is kept
  const auto kept = [&](double x) { return std::trunc(std::ldexp(x, -unit)); };
  double sum = kept(static_cast<double>(c));  // integers below 2^31: exact
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += kept(static_cast<double>(a[i]) * static_cast<double>(b[i]));
  return tensor_core::cut_to_float(std::ldexp(sum, unit));
}

/// A whole dot product: K ascending in steps, one accumulator. The canonical order of a GPU's forward products.
inline float tensor_core_dot(std::span<const float> a, std::span<const float> b,
                             const TensorCore& core = {}, float c = 0) {
  const auto step = static_cast<std::size_t>(core.terms);
  for (std::size_t k = 0; k < a.size(); k += step) {
    const std::size_t n = std::min(step, a.size() - k);
    c = tensor_core_step(c, a.subspan(k, n), b.subspan(k, n), core);
  }
  return c;
}

}  // namespace rose::kernels
