// Fit a line whose relative errors are small.

#include "rose/dist/cost.h"

#include <cmath>

#include "rose/core/error.h"

namespace rose::dist {

WireCost fit(std::span<const TimedMessage> messages) {
  double w = 0, wn = 0, wnn = 0, wt = 0, wnt = 0;
  for (const TimedMessage& m : messages) {
    const double weight = 1 / (m.seconds * m.seconds);
    w += weight, wn += weight * m.bytes, wnn += weight * m.bytes * m.bytes;
    wt += weight * m.seconds, wnt += weight * m.bytes * m.seconds;
  }
  const double determinant = w * wnn - wn * wn;
  if (!(determinant > 0))
    throw core::Error(core::Code::invalid_argument, "a line needs two sizes").in("messages");
  return {(wt * wnn - wn * wnt) / determinant, (w * wnt - wn * wt) / determinant};
}

}  // namespace rose::dist
