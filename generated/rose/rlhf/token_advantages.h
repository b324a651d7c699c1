// One number for each token.

#pragma once

#include <span>
#include <vector>

#include "rose/rlhf/trajectory.h"

namespace rose::rlhf {

/// The advantage on every trained token, zero elsewhere.
std::vector<double> broadcast(const Trajectory& t, double advantage);
/// advantages[k] on the trained tokens of the k-th action turn. Throws invalid_argument when the
/// numbers of turns differ.
std::vector<double> broadcast_turns(const Trajectory& t, std::span<const double> advantages);

/// How turns of equal state are compared.
struct GigpoOptions {
  double gamma = 1, omega = 1;
  bool divide = false;  ///< by the deviation, both times
};
/// Per trajectory of one group, the advantages of its tokens. A turn whose state is unknown, or
/// that nobody else was in, has the episode's part alone.
std::vector<std::vector<double>> gigpo(std::span<const Trajectory> group,
                                       const GigpoOptions& options);

}  // namespace rose::rlhf
