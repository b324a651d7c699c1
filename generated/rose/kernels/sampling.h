// Choose a token: the specification, and its twin on the CPU.

#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace rose::kernels {

/// How a request chooses. The defaults choose the most likely token.
struct SamplingParams {
  float temperature = 0.0f;
  std::int32_t top_k = 0;  ///< 0: all
  float top_p = 1.0f;      ///< 1: all
  float min_p = 0.0f;      ///< 0: all
  std::uint64_t seed = 0;
  std::uint64_t position = 0;  ///< of the token to come; with the seed, all that chance depends on
};

/// Throws core::Error (invalid_argument) that names the field out of range.
void validate(const SamplingParams& params);

/// What is done to a request's logits before the choice. Ids are unique within each list.
struct LogitAdjustment {
  std::span<const std::pair<std::int32_t, float>> bias = {};
  std::span<const std::uint32_t> mask =
      {};  ///< bit v % 32 of word v / 32 allows token v; empty: all
  std::span<const std::pair<std::int32_t, std::int32_t>> context =
      {};  ///< ids, and how often each was generated
  float repetition = 1.0f, frequency = 0.0f, presence = 0.0f;
};
void adjust_logits(std::span<float> logits, const LogitAdjustment& adjustment);

/// -ln(-ln u) for u = (w + 1/2) 2^-23, w the upper 23 bits of word `token` of stream `position`.
float gumbel_noise(std::uint64_t seed, std::uint64_t position, std::int32_t token);

struct Choice {
  std::int32_t token = -1;  ///< -1: a logit is NaN, or all are -inf
  float logprob = 0.0f;     ///< of the distribution that was drawn from: 0 when greedy
};

/// Chooses; `scratch` is kept between calls so that they do not allocate.
Choice sample(std::span<const float> logits, const SamplingParams& params,
              std::vector<std::pair<float, std::int32_t>>& scratch);

/// The ids.size() largest logits, equal ones by lowest id, and logprobs = logit - lse. Where the vocabulary is smaller, the rest
/// is -1 and -inf; so is all of it if a logit is NaN.
void top_logprobs(std::span<const float> logits, float lse, std::span<std::int32_t> ids,
                  std::span<float> logprobs);

}  // namespace rose::kernels
