// Means, without whom.

#include "rose/rlhf/group_advantages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "rose/core/error.h"

namespace rose::rlhf {

namespace {

// A group has two members, and they are numbers.
[[noreturn]] void refuse(const char* argument, std::string message) {
  throw core::Error(core::Code::invalid_argument, std::move(message)).in(argument);
}

void check(std::span<const double> rewards, const char* what) {
  for (std::size_t i = 0; i < rewards.size(); ++i)
    if (!std::isfinite(rewards[i]))
      refuse("rewards", fmt::format("the reward of attempt {} is {}", i, rewards[i]));
  if (rewards.size() < 2)
    refuse("rewards",
           fmt::format("a {} of {} has nothing to be compared with", what, rewards.size()));
}

bool uniform(std::span<const double> rewards) {
  return std::ranges::all_of(rewards, [&](double r) { return r == rewards[0]; });
}

double mean_of(std::span<const double> rewards) {
  double sum = 0;
  for (const double r : rewards) sum += r;
  return sum / static_cast<double>(rewards.size());
}

std::vector<double> minus(std::span<const double> rewards, double baseline, double scale = 1) {
  std::vector<double> result;
  for (const double r : rewards) result.push_back((r - baseline) * scale);
  return result;
}

double deviation_of(std::span<const double> rewards, Deviation kind) {
  const double mean = mean_of(rewards);
  double sum = 0;
  for (const double r : rewards) sum += (r - mean) * (r - mean);
  const auto n = static_cast<double>(rewards.size());
  return std::sqrt(sum / (kind == Deviation::sample ? n - 1 : n));
}

}  // namespace

// Of one group.
std::vector<double> group_centred(std::span<const double> rewards) {
  check(rewards, "group");
  if (uniform(rewards)) return std::vector<double>(rewards.size());
  return minus(rewards, mean_of(rewards));
}

std::vector<double> rloo(std::span<const double> rewards) {
  std::vector<double> result = group_centred(rewards);
  const auto n = static_cast<double>(rewards.size());
  for (double& a : result) a *= n / (n - 1);
  return result;
}

std::vector<double> group_standardised(std::span<const double> rewards, Deviation deviation,
                                       double guard) {
  check(rewards, "group");
  if (uniform(rewards)) return std::vector<double>(rewards.size());
  return minus(rewards, mean_of(rewards), 1 / (deviation_of(rewards, deviation) + guard));
}

std::vector<double> opo(std::span<const double> rewards, std::span<const double> lengths) {
  check(rewards, "group");
  if (lengths.size() != rewards.size())
    refuse("lengths", fmt::format("{} for {} rewards", lengths.size(), rewards.size()));
  if (uniform(rewards)) return std::vector<double>(rewards.size());
  double weighted = 0, tokens = 0;
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    if (!(lengths[i] > 0)) refuse("lengths", fmt::format("attempt {} has {}", i, lengths[i]));
    weighted += lengths[i] * rewards[i];
    tokens += lengths[i];
  }
  return minus(rewards, weighted / tokens);
}

// Of a batch.
std::vector<std::vector<std::size_t>> members(const GroupedRewards& batch) {
  if (batch.group.size() != batch.rewards.size())
    refuse("group", fmt::format("{} for {} rewards", batch.group.size(), batch.rewards.size()));
  std::map<std::int32_t, std::size_t> place;
  std::vector<std::vector<std::size_t>> result;
  for (std::size_t i = 0; i < batch.group.size(); ++i) {
    const auto [at, fresh] = place.emplace(batch.group[i], result.size());
    if (fresh) result.emplace_back();
    result[at->second].push_back(i);
  }
  return result;
}

std::vector<double> batch_centred(std::span<const double> rewards) {
  check(rewards, "batch");
  return group_centred(rewards);
}

std::vector<double> reinforce_plus_plus(std::span<const double> rewards) {
  check(rewards, "batch");
  return group_standardised(rewards, Deviation::population);
}

std::vector<double> reinforce_plus_plus_baseline(const GroupedRewards& batch) {
  std::vector<double> centred = per_group(batch, group_centred);
  if (uniform(centred)) return std::vector<double>(centred.size());
  const double deviation = deviation_of(centred, Deviation::population);
  for (double& a : centred) a /= deviation;
  return centred;
}

std::vector<double> remax(std::span<const double> rewards, std::span<const double> greedy) {
  if (greedy.size() != rewards.size())
    refuse("greedy", fmt::format("{} for {} rewards", greedy.size(), rewards.size()));
  std::vector<double> result;
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    if (!std::isfinite(rewards[i]) || !std::isfinite(greedy[i]))
      refuse("rewards", fmt::format("attempt {} or its greedy answer is not finite", i));
    result.push_back(rewards[i] - greedy[i]);
  }
  return result;
}

std::vector<double> gdpo(std::span<const std::vector<double>> components,
                         std::span<const double> weights, std::span<const std::int32_t> group) {
  if (components.empty() || weights.size() != components.size())
    refuse("weights", fmt::format("{} for {} components", weights.size(), components.size()));
  std::vector<double> sum(group.size());
  for (std::size_t c = 0; c < components.size(); ++c) {
    const auto part = per_group({components[c], group}, [](const auto& rewards) {
      return group_standardised(rewards, Deviation::population);
    });
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += weights[c] * part[i];
  }
  return reinforce_plus_plus(sum);
}

std::vector<double> RunningBaseline::advantages(std::span<const double> rewards) {
  if (rewards.empty()) refuse("rewards", "the batch is empty");
  std::vector<double> result = remax(rewards, std::vector<double>(rewards.size(), mean_));
  mean_ = decay_ * mean_ + (1 - decay_) * mean_of(rewards);
  return result;
}

}  // namespace rose::rlhf
