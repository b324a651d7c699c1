// What happened in one episode, token by token.

#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace rose::rlhf {

// Turns, rewards, and how it ended.

/// Which side a turn's tokens came from.
enum class Kind : std::uint8_t { observation, action };

/// One component of the reward, at the turn that earned it.
struct Reward {
  std::string name;
  float value = 0;
  bool operator==(const Reward&) const = default;
};

/// Tokens [begin, end) that came from one side.
struct Turn {
  Kind kind = Kind::observation;
  std::size_t begin = 0, end = 0;
  std::string state;  ///< hash of the environment's state after this turn; empty when unknown
  std::vector<Reward> rewards;
  bool operator==(const Turn&) const = default;
};

/// Over because the world says so, or because we stopped looking.
enum class Ending : std::uint8_t { terminated, truncated };

/// A history that came back with other tokens than those that were sampled.
struct Fork {
  std::string parent;             ///< id of the trajectory that holds the tokens as sampled
  std::size_t at = 0;             ///< first position that differs
  std::int32_t had = 0, got = 0;  ///< the token there, and what came back; -1 past an end
  bool operator==(const Fork&) const = default;
};

// The record.

/// One episode: its fields, its turns and its columns.
struct Trajectory {
  std::string id, task, group;  ///< group: what its advantages are relative to
  std::uint64_t seed = 0;
  std::string environment, environment_version;
  std::string tokenizer_hash, template_hash;
  float temperature = 1;
  bool mixed =
      false;  ///< keys of old weights under new ones: no version has these log-probabilities
  Ending ending = Ending::terminated;
  std::string reason;  ///< "done", "turns", "tokens", "time", "environment: …"
  std::optional<Fork> fork;
  std::vector<Turn> turns;

  // Columns, one entry for each token. Observations have trained 0, version -1 and zeros.
  std::vector<std::int32_t> tokens;
  std::vector<std::uint8_t> trained;  ///< 1: the policy sampled it, and the loss may count it
  std::vector<std::int64_t> version;  ///< of the weights that drew it
  std::vector<float> raw;             ///< log-probability in nats, of the untouched softmax
  std::vector<float> behaviour;       ///< log-probability in nats, as drawn
  std::vector<std::vector<std::int32_t>> support;  ///< ids that were allowed, ascending; empty: all

  bool operator==(const Trajectory&) const = default;
};

// Check it, and sum it up.

/// No bound on the versions of a record.
constexpr std::int64_t any_version = std::numeric_limits<std::int64_t>::max();

/// Throws core::Error (corrupt) naming the trajectory, the field, the token and what is wrong with it.
/// `newest`: the newest version that exists; a token of a later one comes from the future.
void validate(const Trajectory& t, std::int64_t newest = any_version);

/// As validate, and at least one token is trained, and nothing is mixed unless that is allowed.
void validate_for_training(const Trajectory& t, std::int64_t newest, bool allow_mixed = false);

/// Tokens that the loss may count.
std::size_t trained_tokens(const Trajectory& t);
/// The sum of all components of all turns.
double total_reward(const Trajectory& t);
/// How many updates old its oldest trained token is when `now` is trained; 0 without such tokens.
std::int64_t staleness(const Trajectory& t, std::int64_t now);
/// The sum of each turn's reward at the last trained token of the last action at or before it, [n].
std::vector<double> token_rewards(const Trajectory& t);

}  // namespace rose::rlhf
