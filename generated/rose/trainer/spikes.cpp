// Measure against the window, then take the value in.

#include "rose/trainer/spikes.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace rose::trainer {

double SpikeDetector::push(double value) {
  if (!std::isfinite(value)) return std::numeric_limits<double>::infinity();
  double z = 0.0;
  if (2 * window_.size() >= size_) {
    const auto n = static_cast<double>(window_.size());
    double mean = 0.0, square = 0.0;
    for (const double x : window_) mean += x / n;
    for (const double x : window_) square += (x - mean) * (x - mean) / n;
    const double deviation = std::sqrt(square);
    // A window without any spread measures nothing: values that repeat exactly are not a run.
    z = deviation > 0.0 ? (value - mean) / deviation : 0.0;
    value = std::min(value, mean + threshold_ * deviation);
  }
  if (window_.size() == size_) window_.erase(window_.begin());
  window_.push_back(value);
  return z;
}

}  // namespace rose::trainer
