// Notice a value that stands out.

#pragma once

#include <cstddef>
#include <vector>

namespace rose::trainer {

/// Compares each value with the window of those before it. Its state is the window: plain numbers, for a checkpoint.
class SpikeDetector {
 public:
  explicit SpikeDetector(std::size_t window = 128, double threshold = 5.0)
      : size_(window), threshold_(threshold) {}

  /// How many standard deviations `value` lies above the window's mean; 0 while the window holds fewer than half of its
  /// values, infinite for a value that is not finite. Then takes the value in, at most at the threshold.
  double push(double value);
  bool stands_out(double z) const { return z > threshold_; }

  const std::vector<double>& window() const { return window_; }  ///< oldest first
  void restore(std::vector<double> window) { window_ = std::move(window); }

 private:
  std::size_t size_;
  double threshold_;
  std::vector<double> window_;
};

}  // namespace rose::trainer
