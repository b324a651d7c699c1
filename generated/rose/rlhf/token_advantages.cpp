// Spread advantages over tokens.

#include "rose/rlhf/token_advantages.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "rose/core/error.h"
#include "rose/rlhf/group_advantages.h"
#include "rose/rlhf/returns.h"

namespace rose::rlhf {

// To every token, or to those of a turn.
std::vector<double> broadcast(const Trajectory& t, double advantage) {
  std::vector<double> result(t.tokens.size());
  for (std::size_t i = 0; i < result.size(); ++i)
    if (t.trained[i] != 0) result[i] = advantage;
  return result;
}

std::vector<double> broadcast_turns(const Trajectory& t, std::span<const double> advantages) {
  const auto actions =
      static_cast<std::size_t>(std::ranges::count(t.turns, Kind::action, &Turn::kind));
  if (actions != advantages.size())
    throw core::Error(core::Code::invalid_argument,
                      fmt::format("{} advantages for {} actions", advantages.size(), actions))
        .in(fmt::format("trajectory '{}'", t.id));
  std::vector<double> result(t.tokens.size());
  std::size_t k = 0;
  for (const Turn& turn : t.turns) {
    if (turn.kind != Kind::action) continue;
    for (std::size_t i = turn.begin; i < turn.end; ++i)
      if (t.trained[i] != 0) result[i] = advantages[k];
    ++k;
  }
  return result;
}

// Compare actions that were taken in the same state.
namespace {

// A step of one attempt: what followed it, and where it was taken.
struct Step {
  std::size_t trajectory, action;
  double following;
};

std::vector<double> turn_rewards(const Trajectory& t, std::vector<std::string>& states) {
  std::vector<double> rewards;
  std::string state;
  for (const Turn& turn : t.turns) {
    if (turn.kind == Kind::action) {
      rewards.push_back(0);
      states.push_back(state);
    } else {
      state = turn.state;
    }
    for (const Reward& reward : turn.rewards)
      if (!rewards.empty()) rewards.back() += double{reward.value};
  }
  return rewards;
}

std::vector<double> compared(std::span<const double> numbers, bool divide) {
  if (numbers.empty()) return {};
  if (numbers.size() == 1) return {0.0};  // nobody else was there
  return divide ? group_standardised(numbers, Deviation::population) : group_centred(numbers);
}

}  // namespace

std::vector<std::vector<double>> gigpo(std::span<const Trajectory> group,
                                       const GigpoOptions& options) {
  std::vector<double> totals;
  std::map<std::string, std::vector<Step>> same;
  std::vector<std::vector<double>> turns(group.size()), result;
  for (std::size_t k = 0; k < group.size(); ++k) {
    totals.push_back(total_reward(group[k]));
    std::vector<std::string> states;
    const auto returns = discounted_returns(turn_rewards(group[k], states), options.gamma);
    turns[k].resize(returns.size());
    for (std::size_t a = 0; a < returns.size(); ++a)
      if (!states[a].empty()) same[states[a]].push_back({k, a, returns[a]});
  }
  for (const auto& [state, steps] : same) {
    std::vector<double> following;
    for (const Step& step : steps) following.push_back(step.following);
    const auto advantages = compared(following, options.divide);
    for (std::size_t s = 0; s < steps.size(); ++s)
      turns[steps[s].trajectory][steps[s].action] = options.omega * advantages[s];
  }
  const auto episode = compared(totals, options.divide);
  for (std::size_t k = 0; k < group.size(); ++k) {
    for (double& a : turns[k]) a += episode[k];
    result.push_back(broadcast_turns(group[k], turns[k]));
  }
  return result;
}

}  // namespace rose::rlhf
