// Say what a message costs.

#pragma once

#include <span>

namespace rose::dist {

/// A message of n bytes takes alpha + beta n seconds.
struct WireCost {
  double alpha = 0, beta = 0;

  double of(double bytes) const { return alpha + beta * bytes; }
  double half_size() const {
    return alpha / beta;
  }  ///< bytes at which half of the bandwidth is reached
};

struct TimedMessage {
  double bytes = 0, seconds = 0;
};

/// The line with the least squares of relative errors. Needs two sizes at least.
WireCost fit(std::span<const TimedMessage> messages);

}  // namespace rose::dist
