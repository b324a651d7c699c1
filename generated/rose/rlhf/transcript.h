// Write an episode down while it happens.

#pragma once

#include "rose/rlhf/trajectory.h"

namespace rose::rlhf {

/// One sampled token, as the engine reports it.
struct SampledToken {
  std::int32_t id = 0;
  std::int64_t version = 0;
  float raw = 0, behaviour = 0;
  std::vector<std::int32_t> support = {};
  bool trained = true;
};

/// What a transcript does with a history that differs.
enum class OnFork : std::uint8_t { record, refuse };

/// An episode that is being sampled; its ids only grow.
class Transcript {
 public:
  /// `start` has the fields that are known before the first token; its columns are empty.
  explicit Transcript(Trajectory start, OnFork on_fork = OnFork::record);

  void observe(std::span<const std::int32_t> ids, std::string state = {});
  void act(std::span<const SampledToken> tokens);
  /// At the last turn. Throws invalid_argument for a number that is not finite, or before any turn.
  void reward(std::string name, double value);

  /// A harness's whole prompt. Appends what it adds to the history; if it does not begin with the
  /// history, closes this trajectory and opens another with `fork` set. Returns whether it forked.
  bool observe_prompt(std::span<const std::int32_t> prompt);

  std::span<const std::int32_t> tokens() const { return now_.tokens; }
  /// Ends the episode: all its trajectories, the forked-off ones first. Each is validated.
  std::vector<Trajectory> finish(Ending ending, std::string reason);

 private:
  Trajectory start_, now_;
  std::vector<Trajectory> closed_;
  OnFork on_fork_;
};

}  // namespace rose::rlhf
