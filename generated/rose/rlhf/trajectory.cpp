// What makes a record wrong.

#include "rose/rlhf/trajectory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "rose/core/error.h"

namespace rose::rlhf {

namespace {

// Refuse with the trajectory's name.
template <class... Args>
[[noreturn]] void refuse(const Trajectory& t, fmt::format_string<Args...> text, Args&&... args) {
  throw core::Error(core::Code::corrupt, fmt::format(text, std::forward<Args>(args)...))
      .in(fmt::format("trajectory '{}'", t.id));
}

template <class Column>
void check_length(const Trajectory& t, const char* name, const Column& column) {
  if (column.size() != t.tokens.size())
    refuse(t, "{} has {} entries for {} tokens", name, column.size(), t.tokens.size());
}

void check_logprob(const Trajectory& t, const char* name, std::size_t i, float value) {
  if (!std::isfinite(value)) refuse(t, "{} of token {} is {}", name, i, value);
  if (value > 0) refuse(t, "{} of token {} is {}: a log-probability is at most 0", name, i, value);
}

// Turns cover the columns without a gap, and their rewards are numbers.
void check_turns(const Trajectory& t) {
  std::size_t at = 0;
  for (std::size_t k = 0; k < t.turns.size(); ++k) {
    const Turn& turn = t.turns[k];
    if (turn.begin != at) refuse(t, "turn {} begins at {}, expected {}", k, turn.begin, at);
    if (turn.end < turn.begin || turn.end > t.tokens.size())
      refuse(t, "turn {} ends at {}: it begins at {}, and there are {} tokens", k, turn.end,
             turn.begin, t.tokens.size());
    for (const Reward& reward : turn.rewards)
      if (!std::isfinite(reward.value))
        refuse(t, "reward '{}' of turn {} is {}", reward.name, k, reward.value);
    at = turn.end;
  }
  if (at != t.tokens.size()) refuse(t, "the turns end at {} of {} tokens", at, t.tokens.size());
}

void check_observation(const Trajectory& t, std::size_t i) {
  if (t.trained[i] != 0) refuse(t, "token {} is trained, and it is an observation", i);
  if (t.version[i] != -1)
    refuse(t, "version of token {} is {}: an observation has -1", i, t.version[i]);
  if (t.raw[i] != 0 || t.behaviour[i] != 0 || !t.support[i].empty())
    refuse(t, "token {} is an observation and has log-probabilities", i);
}

void check_action(const Trajectory& t, std::size_t i, std::int64_t newest) {
  if (t.trained[i] > 1) refuse(t, "trained of token {} is {}, not 0 or 1", i, t.trained[i]);
  if (t.version[i] < 0) refuse(t, "version of token {} is {}", i, t.version[i]);
  if (t.version[i] > newest)
    refuse(t, "version of token {} is {}, from the future: the newest is {}", i, t.version[i],
           newest);
  check_logprob(t, "raw", i, t.raw[i]);
  check_logprob(t, "behaviour", i, t.behaviour[i]);
  const auto& allowed = t.support[i];
  if (allowed.empty()) return;
  if (!std::ranges::is_sorted(allowed, std::ranges::less_equal{}) || allowed.front() < 0)
    refuse(t, "support of token {} is not a set of ids in ascending order", i);
  if (!std::ranges::binary_search(allowed, t.tokens[i]))
    refuse(t, "token {} is {}, which its support of {} ids forbids", i, t.tokens[i],
           allowed.size());
}

}  // namespace

// Check every field.
void validate(const Trajectory& t, std::int64_t newest) {
  if (t.id.empty()) refuse(t, "it has no id");
  if (!(std::isfinite(t.temperature) && t.temperature >= 0))
    refuse(t, "temperature is {}", t.temperature);
  check_length(t, "trained", t.trained);
  check_length(t, "version", t.version);
  check_length(t, "raw", t.raw);
  check_length(t, "behaviour", t.behaviour);
  check_length(t, "support", t.support);
  check_turns(t);
  for (const Turn& turn : t.turns) {
    for (std::size_t i = turn.begin; i < turn.end; ++i) {
      if (t.tokens[i] < 0) refuse(t, "token {} is {}", i, t.tokens[i]);
      if (turn.kind == Kind::observation)
        check_observation(t, i);
      else
        check_action(t, i, newest);
    }
  }
}

void validate_for_training(const Trajectory& t, std::int64_t newest, bool allow_mixed) {
  validate(t, newest);
  if (trained_tokens(t) == 0) refuse(t, "no token is trained: the mask selects nothing");
  if (t.mixed && !allow_mixed)
    refuse(t, "it is mixed: keys of old weights were used under new ones");
}

// Count and sum.
std::size_t trained_tokens(const Trajectory& t) {
  return static_cast<std::size_t>(std::ranges::count(t.trained, std::uint8_t{1}));
}

double total_reward(const Trajectory& t) {
  double sum = 0;
  for (const Turn& turn : t.turns)
    for (const Reward& reward : turn.rewards) sum += double{reward.value};
  return sum;
}

std::int64_t staleness(const Trajectory& t, std::int64_t now) {
  std::int64_t oldest = now;
  for (std::size_t i = 0; i < t.tokens.size(); ++i)
    if (t.trained[i] != 0) oldest = std::min(oldest, t.version[i]);
  return now - oldest;
}

std::vector<double> token_rewards(const Trajectory& t) {
  std::vector<double> rewards(t.tokens.size());
  std::optional<std::size_t> last;
  for (const Turn& turn : t.turns) {
    for (std::size_t i = turn.begin; i < turn.end; ++i)
      if (t.trained[i] != 0) last = i;
    for (const Reward& reward : turn.rewards)
      if (last) rewards[*last] += double{reward.value};
  }
  return rewards;
}

}  // namespace rose::rlhf
