// Append, or fork.

#include "rose/rlhf/transcript.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "rose/core/error.h"

namespace rose::rlhf {

Transcript::Transcript(Trajectory start, OnFork on_fork)
    : start_(std::move(start)), now_(start_), on_fork_(on_fork) {}

// Append a turn to every column.
void Transcript::observe(std::span<const std::int32_t> ids, std::string state) {
  const std::size_t begin = now_.tokens.size(), end = begin + ids.size();
  now_.tokens.insert(now_.tokens.end(), ids.begin(), ids.end());
  now_.trained.resize(end, 0);
  now_.version.resize(end, -1);
  now_.raw.resize(end, 0);
  now_.behaviour.resize(end, 0);
  now_.support.resize(end);
  now_.turns.push_back({Kind::observation, begin, end, std::move(state), {}});
}

void Transcript::act(std::span<const SampledToken> tokens) {
  const std::size_t begin = now_.tokens.size();
  for (const SampledToken& token : tokens) {
    now_.tokens.push_back(token.id);
    now_.trained.push_back(token.trained ? 1 : 0);
    now_.version.push_back(token.version);
    now_.raw.push_back(token.raw);
    now_.behaviour.push_back(token.behaviour);
    now_.support.push_back(token.support);
  }
  now_.turns.push_back({Kind::action, begin, now_.tokens.size(), {}, {}});
}

void Transcript::reward(std::string name, double value) {
  if (!std::isfinite(value) || now_.turns.empty())
    throw core::Error(core::Code::invalid_argument, now_.turns.empty()
                                                        ? "a reward before the first turn"
                                                        : fmt::format("the reward is {}", value))
        .in(fmt::format("trajectory '{}', reward '{}'", now_.id, name));
  now_.turns.back().rewards.push_back({std::move(name), static_cast<float>(value)});
}

// Compare a prompt with the history.
bool Transcript::observe_prompt(std::span<const std::int32_t> prompt) {
  const auto& had = now_.tokens;
  const auto [mine, theirs] = std::ranges::mismatch(had, prompt);
  const auto at = static_cast<std::size_t>(mine - had.begin());
  if (at == had.size()) {
    observe(prompt.subspan(at));
    return false;
  }
  const Fork fork{now_.id, at, *mine, theirs == prompt.end() ? -1 : *theirs};
  if (on_fork_ == OnFork::refuse)
    throw core::Error(core::Code::invalid_argument,
                      fmt::format("the prompt has token {} at {}, and the history has {}", fork.got,
                                  at, fork.had))
        .in(fmt::format("trajectory '{}'", now_.id))
        .hint("append to the sampled ids instead of tokenising the conversation again");
  now_.ending = Ending::truncated;
  now_.reason = "fork";
  closed_.push_back(std::exchange(now_, start_));
  now_.id = fmt::format("{}+{}", start_.id, closed_.size());
  now_.fork = fork;
  observe(prompt);
  return true;
}

// Close, check and hand over.
std::vector<Trajectory> Transcript::finish(Ending ending, std::string reason) {
  now_.ending = ending;
  now_.reason = std::move(reason);
  closed_.push_back(std::exchange(now_, start_));
  for (const Trajectory& t : closed_) validate(t);
  return std::exchange(closed_, {});
}

}  // namespace rose::rlhf
