// The loop, its settings and its curve.

#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "rose/rlhf/objective.h"
#include "rose/rlhf/toy_policy.h"
#include "rose/rlhf/trajectory.h"

namespace rose::rlhf {

/// Settings of a run.
struct ToyOptions {
  std::uint64_t seed = 1;
  int updates = 400;                      ///< at most
  int tasks = 16, group = 16, turns = 3;  ///< of one batch; attempts at each task; turns
  int epochs = 2;                         ///< steps on each batch: the second is off-policy
  double rate = 0.1;
  double entropy = 0.01;
  int evaluate_every = 10, evaluation_episodes = 1000;
  double target = 0.95;                                ///< sampled success at which it stops
  std::function<void(const Trajectory&)> record = {};  ///< called for each trajectory, if set
};

/// One update, as it went.
struct ToyPoint {
  int update = 0;
  double training = 0;                ///< success of the batch that was just trained on
  double evaluated = -1;              ///< sampled success on held-out tasks; -1: not measured here
  Diagnostics first = {}, last = {};  ///< of the first and of the last step on the batch
};

/// A run: whether it arrived, what it drew, and its curve.
struct ToyResult {
  bool reached = false;
  double success = 0;  ///< the last evaluation
  std::int64_t episodes = 0, tokens = 0;
  std::vector<ToyPoint> curve;
};

/// One episode under the policy, as a validated trajectory; a function of policy, task and attempt.
Trajectory toy_episode(const ToyPolicy& policy, std::uint64_t task, std::uint64_t attempt,
                       std::int64_t version, int turns);
/// Trains until the target or the last update. The same seed gives the same bits.
ToyResult train_toy(const ToyOptions& options,
                    const std::function<void(const ToyPoint&)>& progress = {});

}  // namespace rose::rlhf
