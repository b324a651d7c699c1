// What kind of learning a system does, and what its transcript counts.

#pragma once

#include <cstdint>
#include <span>

namespace rose::labs {

// Five answers decide the kind.
struct System {
  bool weights_change, reward_in_update, own_samples, world_answers, several_decisions;
};

enum class Kind { no_training, imitation, offline_preferences, one_decision, agentic };

inline Kind classify(const System& s) {
  if (!s.weights_change) return Kind::no_training;
  if (!s.reward_in_update) return Kind::imitation;
  if (!s.own_samples) return Kind::offline_preferences;
  return s.world_answers && s.several_decisions ? Kind::agentic : Kind::one_decision;
}

// Count a transcript on every clock.
enum class Owner : std::uint8_t { harness, task, policy, world };

/// A run of tokens written by one party; version is that of the weights, for the policy's.
struct Piece {
  Owner owner;
  int tokens;
  int version = 0;
};

struct Ledger {
  int context = 0;      ///< tokens in the context at the end
  int sampled = 0;      ///< tokens that the policy drew: the only ones that are trained on
  int decisions = 0;    ///< pieces of the policy
  int after_first = 0;  ///< sampled tokens after the first decision
  int everything_after_first = 0;  ///< all tokens after it
  int oldest = 0, newest = 0;      ///< versions of the weights that took part
};

inline Ledger count(std::span<const Piece> transcript) {
  Ledger l;
  for (const Piece& piece : transcript) {
    l.context += piece.tokens;
    if (l.decisions > 0) l.everything_after_first += piece.tokens;
    if (piece.owner != Owner::policy) continue;
    if (l.decisions > 0) l.after_first += piece.tokens;
    if (l.decisions == 0) l.oldest = piece.version;
    l.newest = piece.version;
    l.sampled += piece.tokens;
    ++l.decisions;
  }
  return l;
}

}  // namespace rose::labs
