// Logits to log-probabilities and back.

#pragma once

#include <cstdint>
#include <span>

namespace rose::rlhf {

/// How a token was drawn from a row of logits.
struct Draw {
  std::int32_t token = 0;
  double temperature = 1;                      ///< positive
  std::span<const std::int32_t> support = {};  ///< allowed ids; empty: all
};

/// What one row of logits says of the token that was drawn from it.
struct RowScore {
  double logprob = 0;  ///< of the token, as drawn, in nats
  double entropy = 0;  ///< of the drawn distribution, in nats
};

/// logits [V]. Throws core::Error (invalid_argument) for a token or support outside [0, V), a token
/// that its support forbids, and a temperature that is not positive.
RowScore score_row(std::span<const float> logits, const Draw& draw);

/// Replaces the logits by the gradient of weight * logprob + entropy_weight * entropy.
RowScore differentiate_row(std::span<float> logits, const Draw& draw, double weight,
                           double entropy_weight = 0);

}  // namespace rose::rlhf
