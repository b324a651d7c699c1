// Compare a gradient with central differences of its function.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

namespace rose::trainer {

/// The worst disagreement found, and where.
struct GradientCheck {
  double error =
      0.0;  ///< |analytic - numeric| / max(|analytic|, |numeric|, largest analytic / 1000)
  std::size_t index = 0;
  double analytic = 0.0;
  double numeric = 0.0;
};

/// Central differences of `function(span<const Real>) -> double` at `x`, coordinate by coordinate
/// (every `stride`-th), against `gradient`. `x` is perturbed in place and restored. A `step` of zero
/// takes cbrt(3 u), u the unit roundoff of Real; noisy functions want a larger one.
template <class Real, class Function>
GradientCheck check_gradient(Function&& function, std::span<Real> x, std::span<const Real> gradient,
                             std::size_t stride = 1, double step = 0.0) {
  if (step == 0.0)
    step = std::cbrt(1.5 * static_cast<double>(std::numeric_limits<Real>::epsilon()));
  double largest = 0.0;
  for (const Real g : gradient) largest = std::fmax(largest, std::fabs(static_cast<double>(g)));
  const double floor = std::fmax(largest / 1000, std::numeric_limits<double>::min());
  GradientCheck worst;
  for (std::size_t i = 0; i < x.size(); i += stride) {
    // Nudge one coordinate both ways.
    const Real kept = x[i];
    const auto nudge =
        static_cast<Real>(step * std::fmax(1.0, std::fabs(static_cast<double>(kept))));
    const Real up = kept + nudge;
    const Real down = kept - nudge;
    x[i] = up;
    const double above = function(std::span<const Real>(x));
    x[i] = down;
    const double below = function(std::span<const Real>(x));
    x[i] = kept;
    const double numeric = (above - below) / (static_cast<double>(up) - static_cast<double>(down));
    const auto analytic = static_cast<double>(gradient[i]);
    const double scale = std::fmax(floor, std::fmax(std::fabs(analytic), std::fabs(numeric)));
    const double error = std::fabs(analytic - numeric) / scale;
    if (!(error <= worst.error)) worst = {error, i, analytic, numeric};
  }
  return worst;
}

}  // namespace rose::trainer
