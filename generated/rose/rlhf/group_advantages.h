// Advantages relative to a group, or to the batch.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rose::rlhf {

/// Whether a standard deviation divides by G or by G - 1.
enum class Deviation : std::uint8_t { population, sample };

// Of one group: rewards [G] to advantages [G]. Throw invalid_argument for a group of one and for a
// reward that is not finite. Equal rewards give exact zeros.
/// Minus the mean of the others.
std::vector<double> rloo(std::span<const double> rewards);
/// Minus the group's mean.
std::vector<double> group_centred(std::span<const double> rewards);
/// Minus the mean, divided by the deviation plus `guard`.
std::vector<double> group_standardised(std::span<const double> rewards, Deviation deviation,
                                       double guard = 0);
/// lengths: trained tokens of each attempt.
std::vector<double> opo(std::span<const double> rewards, std::span<const double> lengths);

/// Of a batch of groups: group[i] names the group of attempt i.
struct GroupedRewards {
  std::span<const double> rewards;
  std::span<const std::int32_t> group;
};
/// Minus the batch's mean.
std::vector<double> batch_centred(std::span<const double> rewards);
/// Standardised over the batch, with the population's deviation.
std::vector<double> reinforce_plus_plus(std::span<const double> rewards);
/// Minus the group's mean, divided by the deviation of the whole batch.
std::vector<double> reinforce_plus_plus_baseline(const GroupedRewards& batch);
/// Minus the reward of the greedy answer to the same task.
std::vector<double> remax(std::span<const double> rewards, std::span<const double> greedy);
/// components[c][i]: component c of attempt i.
std::vector<double> gdpo(std::span<const std::vector<double>> components,
                         std::span<const double> weights, std::span<const std::int32_t> group);

/// Applies one group's function to every group of a batch; the order of attempts is kept.
template <class F>
std::vector<double> per_group(const GroupedRewards& batch, F&& function);

/// A mean of earlier rewards: never of those it is subtracted from.
class RunningBaseline {
 public:
  explicit RunningBaseline(double decay, double start = 0) : decay_(decay), mean_(start) {}
  std::vector<double> advantages(std::span<const double> rewards);
  double mean() const { return mean_; }

 private:
  double decay_, mean_;
};

// Gather each group, and scatter its advantages.

/// For each group, in the order of first appearance, the indices of its attempts.
/// Throws invalid_argument when the two differ in length.
std::vector<std::vector<std::size_t>> members(const GroupedRewards& batch);

template <class F>
std::vector<double> per_group(const GroupedRewards& batch, F&& function) {
  std::vector<double> result(batch.rewards.size());
  for (const auto& indices : members(batch)) {
    std::vector<double> rewards;
    rewards.reserve(indices.size());
    for (const std::size_t i : indices) rewards.push_back(batch.rewards[i]);
    const std::vector<double> advantages = function(rewards);
    for (std::size_t k = 0; k < indices.size(); ++k) result[indices[k]] = advantages[k];
  }
  return result;
}

}  // namespace rose::rlhf
