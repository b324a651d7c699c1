// Choose the next token.

#include "rose/model/sample.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>

#include "rose/core/error.h"
#include "rose/kernels/sampling.h"

namespace rose::model {

// Refuse settings that mean nothing.
void validate(const Sampling& s) {
  const auto require = [](bool holds, const char* field, std::string message) {
    if (!holds) throw core::Error(core::Code::invalid_argument, std::move(message)).in(field);
  };
  require(s.temperature >= 0.0f && std::isfinite(s.temperature), "temperature",
          fmt::format("a temperature of {} is not at least 0", s.temperature));
  require(s.top_k >= 0, "top_k", fmt::format("{} is not at least 0; 0 keeps every token", s.top_k));
  require(s.top_p > 0.0f && s.top_p <= 1.0f, "top_p",
          fmt::format("{} is not in (0, 1]; 1 keeps every token", s.top_p));
  require(s.min_p >= 0.0f && s.min_p <= 1.0f, "min_p",
          fmt::format("{} is not in [0, 1]; 0 keeps every token", s.min_p));
}

// Find the largest logit, the lowest id first.
namespace {

std::size_t most_likely(std::span<const float> logits) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]))
      throw core::Error(core::Code::internal,
                        fmt::format("the logit of token {} is not a number", i));
    if (logits[i] > logits[best]) best = i;
  }
  return best;
}

}  // namespace

// Choose as the kernels do.
std::int32_t Sampler::choose(std::span<const float> logits, const Sampling& sampling,
                             std::int64_t position) {
  if (logits.empty())
    throw core::Error(core::Code::invalid_argument, "there is no token to choose").in("logits");
  const std::size_t best = most_likely(logits);
  if (sampling.temperature == 0.0f) return static_cast<std::int32_t>(best);
  const kernels::SamplingParams params{.temperature = sampling.temperature,
                                       .top_k = sampling.top_k,
                                       .top_p = sampling.top_p,
                                       .min_p = sampling.min_p,
                                       .seed = sampling.seed,
                                       .position = static_cast<std::uint64_t>(position)};
  const kernels::Choice choice = kernels::sample(logits, params, candidates_);
  if (choice.token < 0)
    throw core::Error(core::Code::internal, "every token is forbidden").in("logits");
  return choice.token;
}

}  // namespace rose::model
