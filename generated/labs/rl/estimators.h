// Advantages from rewards and values.

#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

namespace rose::labs {

// Compare each member of a group with the others.

/// Reward minus the mean of the others' rewards.
inline std::vector<double> leave_one_out(std::span<const double> rewards) {
  const auto n = static_cast<double>(rewards.size());
  if (n < 2) throw std::invalid_argument("a group of one has nobody to be compared with");
  double sum = 0;
  for (const double r : rewards) sum += r;
  std::vector<double> a;
  for (const double r : rewards) a.push_back(r - (sum - r) / (n - 1));
  return a;
}

/// Reward minus the mean, divided by the (population) standard deviation plus a guard.
/// Equal rewards give zeros.
inline std::vector<double> standardised(std::span<const double> rewards, double guard = 0) {
  const auto n = static_cast<double>(rewards.size());
  double mean = 0, squares = 0;
  for (const double r : rewards) mean += r / n;
  for (const double r : rewards) squares += (r - mean) * (r - mean) / n;
  std::vector<double> a;
  for (const double r : rewards)
    a.push_back(squares > 0 ? (r - mean) / (std::sqrt(squares) + guard) : 0.0);
  return a;
}

// Generalised advantage estimation, with and without tokens that are not actions.

/// Advantages of T steps. values has T + 1 entries: the last is what follows the last step,
/// 0 if the episode ended there and an estimate if it was only cut off.
inline std::vector<double> gae(std::span<const double> rewards, std::span<const double> values,
                               double gamma, double lambda) {
  std::vector<double> a(rewards.size());
  double next = 0;
  for (std::size_t t = rewards.size(); t-- > 0;) {
    next = rewards[t] + gamma * values[t + 1] - values[t] + gamma * lambda * next;
    a[t] = next;
  }
  return a;
}

/// The same over a transcript in which some tokens were not sampled by the policy (mask 0): they
/// are no steps, take no discount, and get 0.
inline std::vector<double> gae_over_actions(std::span<const double> rewards,
                                            std::span<const double> values,
                                            std::span<const int> mask, double gamma, double lambda,
                                            double bootstrap = 0) {
  std::vector<double> a(rewards.size());
  double next = 0, next_value = bootstrap;
  for (std::size_t t = rewards.size(); t-- > 0;) {
    if (mask[t] == 0) continue;
    next = rewards[t] + gamma * next_value - values[t] + gamma * lambda * next;
    next_value = values[t];
    a[t] = next;
  }
  return a;
}

}  // namespace rose::labs
