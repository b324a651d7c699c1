// Choose the next token.

#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace rose::model {

/// How to choose from the logits. The defaults choose the most likely token (greedy).
struct Sampling {
  float temperature = 0.0f;  ///< 0: greedy; otherwise logits are divided by it
  int top_k = 0;             ///< keep the k most likely; 0: all
  float top_p = 1.0f;        ///< then the fewest of the most likely whose mass reaches p
  float min_p = 0.0f;        ///< then those at least min_p times as likely as the most likely
  std::uint64_t seed = 0;    ///< with the token's position, all that chance depends on
};

/// Throws core::Error (invalid_argument) that names the field out of range.
void validate(const Sampling& sampling);

/// Chooses tokens; keeps its scratch between calls, so that a call allocates nothing after the first.
class Sampler {
 public:
  /// The token for `position` given logits [V]. Equal logits: the lower id. Deterministic in (logits, sampling, position).
  std::int32_t choose(std::span<const float> logits, const Sampling& sampling,
                      std::int64_t position);

 private:
  std::vector<std::pair<float, std::int32_t>> candidates_;  ///< logit, id
};

}  // namespace rose::model
