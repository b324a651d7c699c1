// Say what the rate is at each step.

#pragma once

#include <cstdint>

namespace rose::trainer {

enum class RateShape : std::uint8_t { constant, linear, cosine, wsd };

/// Warm-up to the peak, then one of the shapes. A function of the step alone: resuming needs no state.
struct RateSchedule {
  RateShape shape = RateShape::cosine;
  std::int64_t steps = 0, warmup = 0;
  std::int64_t decay = 0;  ///< wsd: how many steps before the end the fall begins
  double peak = 1e-3, last = 1e-4;

  /// The rate of step t, counted from 0.
  double rate(std::int64_t t) const;
};

}  // namespace rose::trainer
