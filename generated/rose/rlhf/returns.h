// Returns and advantages along one trajectory.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rose::rlhf {

/// What follows step t, discounted: G_t = r_t + gamma G_{t+1}, and `bootstrap` after the last.
/// Throws invalid_argument for a number that is not finite or a gamma outside [0, 1], as all here.
std::vector<double> discounted_returns(std::span<const double> rewards, double gamma,
                                       double bootstrap = 0);

/// The two factors of generalised advantage estimation, each within [0, 1].
struct Discount {
  double gamma = 1, lambda = 1;
};

/// What the policy and what the critic are trained on, [n] each.
struct Estimate {
  std::vector<double> advantages;
  std::vector<double> targets;  ///< advantage plus value: what the critic is trained on
};

/// GAE (Schulman et al. 2016) over every step.
Estimate gae(std::span<const double> rewards, std::span<const double> values, Discount discount,
             double bootstrap = 0);

/// GAE over the steps with mask 1 alone; the others are stepped over and get zeros. A reward on a
/// masked step is an error: it would be lost.
Estimate gae_over_actions(std::span<const double> rewards, std::span<const double> values,
                          std::span<const std::uint8_t> mask, Discount discount,
                          double bootstrap = 0);

/// The lambda whose window is alpha times the length: 1 - 1 / (alpha length), at least 0.
double length_adaptive_lambda(double alpha, std::size_t length);

/// SAO: gae_over_actions for the policy with the length-adaptive lambda, and the critic's targets
/// with lambda 1.
Estimate sao_advantages(std::span<const double> rewards, std::span<const double> values,
                        std::span<const std::uint8_t> mask, double gamma, double alpha,
                        double bootstrap = 0);

/// V-trace (Espeholt et al. 2018): targets v_t, and advantages rho_t (r_t + gamma v_{t+1} - V_t).
/// ratios[t] is the current policy's probability over the behaviour's.
Estimate v_trace(std::span<const double> rewards, std::span<const double> values,
                 std::span<const double> ratios, Discount discount, double rho_cap, double c_cap,
                 double bootstrap = 0);

/// Rewards plus gamma Phi(s_{t+1}) - Phi(s_t); potentials has one entry more than rewards, and its
/// last counts as zero if the episode terminated.
std::vector<double> shaped_rewards(std::span<const double> rewards,
                                   std::span<const double> potentials, double gamma,
                                   bool terminated);

/// r_t - beta (logprob_t - reference_t) where mask is 1: the k1 penalty inside the reward.
std::vector<double> penalised_rewards(std::span<const double> rewards,
                                      std::span<const double> logprobs,
                                      std::span<const double> reference,
                                      std::span<const std::uint8_t> mask, double beta);

}  // namespace rose::rlhf
