// What multiplies the advantage and the score, for each method.

#pragma once

#include <algorithm>
#include <cmath>

namespace rose::labs {

/// r: ratio of the current to the old (or the behaviour) probability; a: advantage.
/// The gradient of one token is gate * a * score.
inline double gate_ppo(double r, double a, double low, double high) {
  return (a > 0 ? r <= 1 + high : r >= 1 - low) ? r : 0;
}
/// PPO with the loss of a negative advantage capped at c times it.
inline double gate_dual_clip(double r, double a, double low, double high, double c) {
  return a < 0 && r > c ? 0 : gate_ppo(r, a, low, high);
}
inline double gate_cispo(double r, double low, double high) {
  return std::clamp(r, 1 - low, 1 + high);
}
/// Double-sided rejection; the bounds themselves are outside.
inline double gate_rejection(double r, double low, double high) {
  return 1 - low < r && r < 1 + high ? r : 0;
}
inline double gate_sapo(double r, double temperature) {
  const double q = 1 / (1 + std::exp(-temperature * (r - 1)));
  return 4 * q * (1 - q) * r;
}

}  // namespace rose::labs
