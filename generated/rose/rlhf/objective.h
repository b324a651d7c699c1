// From log-probabilities to a weight for each token.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rose::rlhf {

// The choices, one by one.

/// What the current probability of a token is divided by, and over which span.
enum class Ratio : std::uint8_t {
  none,            ///< the score itself: A times the log-probability
  token,           ///< exp(current - old)
  sequence,        ///< exp of the mean difference over the sequence (GSPO)
  sequence_token,  ///< that value, with the gradient of the token (GSPO-token)
  direct           ///< exp(current - behaviour)
};
/// What becomes of ratio r and advantage A.
enum class Gate : std::uint8_t {
  none,        ///< r A
  clip,        ///< min(r A, clip(r) A), within [1 - low, 1 + high]
  weight,      ///< detached clip(r), times A times the log-probability (CISPO)
  reject,      ///< detached r inside (1 - low, 1 + high), else 0, times A log-probability (DIS)
  sigmoid,     ///< (4 / tau) sigmoid(tau (r - 1)) A (SAPO); tau = low for A > 0, else high
  cap,         ///< min(r, high) A (AIPO)
  divergence,  ///< detached min(r, high) A log-probability, masked where the token has moved
               ///< further than `low` in probability, in the direction A pushes it (DPPO)
  positive     ///< A > 0: r / detached(r) A without a clip; else clip (UP-GRPO)
};
/// A detached factor exp(old - behaviour): absent, capped, zero outside an interval, or whole.
enum class Correction : std::uint8_t { none, truncate, mask, full };
/// How the terms of tokens become one number.
enum class Average : std::uint8_t {
  token_mean,
  sequence_mean_token_mean,
  sequence_mean_token_sum,
  constant  ///< sum over (sequences times Averaging::length)
};
/// Whether rejected tokens count in a mean.
enum class Denominator : std::uint8_t { all, accepted };
/// Estimates of the divergence from a reference, one sampled token at a time.
enum class KlEstimator : std::uint8_t {
  k1,      ///< log ratio: its derivative is the constant 1
  k2,      ///< half its square: the value is biased, the gradient on-policy right
  k3,      ///< unbiased value, never negative; its gradient is that of the other direction
  k3_plus  ///< the value of k3, the gradient of k2
};

/// One choice of each kind; a preset has a name for it.
struct Objective {
  Ratio ratio = Ratio::token;
  Gate gate = Gate::clip;
  double low = 0.2, high = 0.2;  ///< the gate's bounds
  double dual = 0;               ///< clip: for A < 0 at least dual * A; 0: no floor
  bool attached = false;         ///< reject: differentiate the weight too, the literal reading

  Correction correction = Correction::none;
  double correction_low = 0, correction_high = 2;  ///< of exp(old - behaviour)

  Average average = Average::token_mean;
  double length = 0;  ///< the constant's budget of tokens per sequence
  Denominator denominator = Denominator::all;

  double kl = 0;  ///< weight of the penalty against the reference; 0: none
  KlEstimator kl_estimator = KlEstimator::k3;
};

// A packed batch of sequences.

/// Columns of length n; the k-th sequence is [starts[k], starts[k + 1]). Columns that the objective
/// does not need may be empty. Log-probabilities are those of the policy that is being compared,
/// under the same temperature and support for all of them.
struct PolicyBatch {
  std::span<const std::size_t> starts;
  std::span<const std::uint8_t> mask;
  std::span<const double> current, old, behaviour, reference;
  std::span<const double> advantage;
};

// The value, the weights, and what to watch.

/// What to watch of a step; shares and means are over the trained tokens.
struct Diagnostics {
  double tokens = 0, sequences = 0;
  double ratio_mean = 0, ratio_max = 0, ratio_min = 0;  ///< of each token's ratio, before the gate
  double effective = 0;     ///< (sum r)^2 / (n sum r^2): share of effective samples
  double clipped_up = 0;    ///< share of tokens with A > 0 whose gradient is gone
  double clipped_down = 0;  ///< share of tokens with A < 0 whose gradient is gone
  double corrected = 0;     ///< share of tokens whose correction was cut or masked
  double kl_old = 0;        ///< k3 of old against current, per token
  double kl_reference = 0;  ///< by the chosen estimator, per token
  double mismatch = 0;      ///< largest |old - behaviour|, in nats
};

/// The objective's value, its gradient, and what was seen on the way.
struct ObjectiveResult {
  double value = 0;             ///< J, to be maximised
  std::vector<double> weights;  ///< dJ / d current, [n], zero off the mask
  Diagnostics seen;
};

/// Numerator and denominator are kept apart, so that a batch can be cut: `scale` replaces the
/// average's denominator when it is positive, and parts then add up to the whole.
/// Throws core::Error (invalid_argument) for columns that are missing or of other lengths, a mask
/// that selects nothing, numbers under the mask that are not finite, and settings that make no sense.
ObjectiveResult evaluate(const Objective& objective, const PolicyBatch& batch, double scale = 0);

/// The denominator of the average over this batch: tokens, sequences, or sequences times length.
double denominator(const Objective& objective, const PolicyBatch& batch);

/// Critic: half the squared error, against values clipped to old +- clip where clip > 0 (the larger
/// of the two); the mean over the mask, with its gradient in the values.
ObjectiveResult value_loss(std::span<const double> values, std::span<const double> old_values,
                           std::span<const double> targets, std::span<const std::uint8_t> mask,
                           double clip);

}  // namespace rose::rlhf
