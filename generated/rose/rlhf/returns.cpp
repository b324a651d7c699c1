// Walk backwards.

#include "rose/rlhf/returns.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "rose/core/error.h"

namespace rose::rlhf {

namespace {

// Refuse what is not a number or does not fit.
[[noreturn]] void refuse(const char* argument, std::string message) {
  throw core::Error(core::Code::invalid_argument, std::move(message)).in(argument);
}

void check_finite(const char* name, std::span<const double> numbers) {
  for (std::size_t i = 0; i < numbers.size(); ++i)
    if (!std::isfinite(numbers[i])) refuse(name, fmt::format("entry {} is {}", i, numbers[i]));
}

void check_unit(const char* name, double value) {
  if (!(value >= 0 && value <= 1)) refuse(name, fmt::format("{} is not within [0, 1]", value));
}

void check_length(const char* name, std::size_t length, std::size_t expected) {
  if (length != expected)
    refuse(name, fmt::format("it has {} entries for {} rewards", length, expected));
}

}  // namespace

// Discounted returns.
std::vector<double> discounted_returns(std::span<const double> rewards, double gamma,
                                       double bootstrap) {
  check_finite("rewards", rewards);
  check_unit("gamma", gamma);
  std::vector<double> returns(rewards.size());
  double next = bootstrap;
  for (std::size_t t = rewards.size(); t-- > 0;) returns[t] = next = rewards[t] + gamma * next;
  return returns;
}

// GAE, with or without steps between.
Estimate gae_over_actions(std::span<const double> rewards, std::span<const double> values,
                          std::span<const std::uint8_t> mask, Discount discount, double bootstrap) {
  check_finite("rewards", rewards);
  check_length("values", values.size(), rewards.size());
  check_length("mask", mask.size(), rewards.size());
  check_unit("gamma", discount.gamma);
  check_unit("lambda", discount.lambda);
  Estimate estimate{std::vector<double>(rewards.size()), std::vector<double>(rewards.size())};
  double next_value = bootstrap, next_advantage = 0;
  for (std::size_t t = rewards.size(); t-- > 0;) {
    if (mask[t] == 0) {
      if (rewards[t] != 0)
        refuse("rewards", fmt::format("entry {} is {}, and the step is masked", t, rewards[t]));
      continue;
    }
    if (!std::isfinite(values[t])) refuse("values", fmt::format("entry {} is {}", t, values[t]));
    const double error = rewards[t] + discount.gamma * next_value - values[t];
    next_advantage = error + discount.gamma * discount.lambda * next_advantage;
    next_value = values[t];
    estimate.advantages[t] = next_advantage;
    estimate.targets[t] = next_advantage + values[t];
  }
  return estimate;
}

Estimate gae(std::span<const double> rewards, std::span<const double> values, Discount discount,
             double bootstrap) {
  const std::vector<std::uint8_t> all(rewards.size(), 1);
  return gae_over_actions(rewards, values, all, discount, bootstrap);
}

double length_adaptive_lambda(double alpha, std::size_t length) {
  if (!(alpha > 0)) refuse("alpha", fmt::format("{} is not positive", alpha));
  if (length == 0) return 0;
  return std::max(0.0, 1 - 1 / (alpha * static_cast<double>(length)));
}

Estimate sao_advantages(std::span<const double> rewards, std::span<const double> values,
                        std::span<const std::uint8_t> mask, double gamma, double alpha,
                        double bootstrap) {
  const auto length = static_cast<std::size_t>(std::ranges::count(mask, std::uint8_t{1}));
  const double lambda = length_adaptive_lambda(alpha, length);
  Estimate policy = gae_over_actions(rewards, values, mask, {gamma, lambda}, bootstrap);
  policy.targets = gae_over_actions(rewards, values, mask, {gamma, 1}, bootstrap).targets;
  return policy;
}

// V-trace.
Estimate v_trace(std::span<const double> rewards, std::span<const double> values,
                 std::span<const double> ratios, Discount discount, double rho_cap, double c_cap,
                 double bootstrap) {
  check_finite("rewards", rewards);
  check_length("values", values.size(), rewards.size());
  check_length("ratios", ratios.size(), rewards.size());
  check_finite("values", values);
  check_finite("ratios", ratios);
  check_unit("gamma", discount.gamma);
  check_unit("lambda", discount.lambda);
  Estimate estimate{std::vector<double>(rewards.size()), std::vector<double>(rewards.size())};
  double next_value = bootstrap, next_target = bootstrap;
  for (std::size_t t = rewards.size(); t-- > 0;) {
    const double rho = std::min(rho_cap, ratios[t]);
    const double c = discount.lambda * std::min(c_cap, ratios[t]);
    estimate.advantages[t] = rho * (rewards[t] + discount.gamma * next_target - values[t]);
    const double error = rho * (rewards[t] + discount.gamma * next_value - values[t]);
    next_target = values[t] + error + discount.gamma * c * (next_target - next_value);
    next_value = values[t];
    estimate.targets[t] = next_target;
  }
  return estimate;
}

// Rewards that are changed before they are summed.
std::vector<double> shaped_rewards(std::span<const double> rewards,
                                   std::span<const double> potentials, double gamma,
                                   bool terminated) {
  check_finite("rewards", rewards);
  check_finite("potentials", potentials);
  if (potentials.size() != rewards.size() + 1)
    refuse("potentials", fmt::format("it has {} entries for {} rewards, not one more",
                                     potentials.size(), rewards.size()));
  std::vector<double> shaped(rewards.size());
  for (std::size_t t = 0; t < rewards.size(); ++t) {
    const bool last = terminated && t + 1 == rewards.size();
    const double next = last ? 0 : potentials[t + 1];
    shaped[t] = rewards[t] + gamma * next - potentials[t];
  }
  return shaped;
}

std::vector<double> penalised_rewards(std::span<const double> rewards,
                                      std::span<const double> logprobs,
                                      std::span<const double> reference,
                                      std::span<const std::uint8_t> mask, double beta) {
  check_length("logprobs", logprobs.size(), rewards.size());
  check_length("reference", reference.size(), rewards.size());
  check_length("mask", mask.size(), rewards.size());
  std::vector<double> result(rewards.begin(), rewards.end());
  for (std::size_t t = 0; t < rewards.size(); ++t)
    if (mask[t] != 0) result[t] -= beta * (logprobs[t] - reference[t]);
  check_finite("rewards", result);
  return result;
}

}  // namespace rose::rlhf
