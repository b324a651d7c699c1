// Warm up, then follow the shape.

#include "rose/trainer/rate_schedule.h"

#include <algorithm>

#include "rose/trainer/schedule.h"

namespace rose::trainer {

double RateSchedule::rate(std::int64_t t) const {
  if (t < warmup) return peak * static_cast<double>(t + 1) / static_cast<double>(warmup);
  // The part that is done of the span from `begin` to the end.
  const auto done = [&](std::int64_t begin) {
    const auto whole = static_cast<double>(std::max<std::int64_t>(1, steps - begin));
    return std::clamp(static_cast<double>(t - begin) / whole, 0.0, 1.0);
  };
  switch (shape) {
    case RateShape::constant: return peak;
    case RateShape::linear: return peak + (last - peak) * done(warmup);
    case RateShape::wsd: return peak + (last - peak) * done(std::max(warmup, steps - decay));
    case RateShape::cosine: break;
  }
  return Schedule{.steps = steps, .warmup = warmup, .peak = peak, .last = last}.rate(t);
}

}  // namespace rose::trainer
