// The examples of part 6.

#pragma once

#include <cstddef>
#include <vector>

#include "labs/rl/process.h"

namespace rose::labs {

/// A service is down: the cause is the code (state 0, probability 0.7) or the configuration (1).
/// Action 0 runs a test, right with probability 0.8; 1 fixes the code, 2 the configuration.
inline Process broken_service(std::size_t horizon, double cost = 0.05) {
  return {{0.7, 0.3}, 3, horizon, [cost](std::size_t state, std::size_t action) {
            if (action == 0)
              return std::vector<Event>{{0.8, state, state, -cost}, {0.2, state, 1 - state, -cost}};
            return std::vector<Event>{{1.0, state, 0, action == state + 1 ? 1.0 : 0.0, true}};
          }};
}

}  // namespace rose::labs
