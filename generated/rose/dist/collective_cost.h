// Say what a collective costs.

#pragma once

#include <bit>

#include "rose/dist/cost.h"

namespace rose::dist {

enum class Algorithm {
  tree,      ///< broadcast or reduce
  ring,      ///< all-gather or reduce-scatter
  direct,    ///< reduce-scatter or all-to-all
  halving,   ///< reduce-scatter; as all-gather: doubling pieces
  doubling,  ///< all-reduce of whole vectors
};

/// Seconds for a vector of `bytes` on `ranks`, whose wires carry a message of their own each way at a time.
inline double collective_cost(Algorithm algorithm, WireCost wire, int ranks, double bytes) {
  const double rounds = std::bit_width(static_cast<unsigned>(ranks - 1)), p = ranks;
  switch (algorithm) {
    case Algorithm::tree:
    case Algorithm::doubling: return rounds * wire.of(bytes);
    case Algorithm::ring:
    case Algorithm::direct: return (p - 1) * wire.of(bytes / p);
    case Algorithm::halving: return rounds * wire.alpha + (p - 1) / p * wire.beta * bytes;
  }
  return 0;
}

}  // namespace rose::dist
