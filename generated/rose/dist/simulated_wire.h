// A wire whose time is arithmetic.

#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "rose/dist/cost.h"
#include "rose/dist/wire.h"

namespace rose::dist {

struct SimulatedRun {
  std::vector<double> clocks;      ///< of each rank, at its end
  std::vector<double> bytes_sent;  ///< by each rank
  double seconds() const;          ///< until the last is done
};

/// Runs body on a thread for each of `size` ranks, connected by wires of this cost. What a body throws ends all, and is thrown.
SimulatedRun simulate(int size, WireCost cost, const std::function<void(Wire&)>& body);

}  // namespace rose::dist
