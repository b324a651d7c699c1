// Choose the next token.

#include "rose/model/sample.h"

#include "rose/core/error.h"
#include "rose/kernels/sampling.h"

namespace rose::model {

// Check as the kernels do.
namespace {

kernels::SamplingParams params_of(const Sampling& s, std::int64_t position) {
  return {.temperature = s.temperature,
          .top_k = s.top_k,
          .top_p = s.top_p,
          .min_p = s.min_p,
          .seed = s.seed,
          .position = static_cast<std::uint64_t>(position)};
}

}  // namespace

void validate(const Sampling& sampling) {
  kernels::validate(params_of(sampling, 0));
}

// Choose as the kernels do.
std::int32_t Sampler::choose(std::span<const float> logits, const Sampling& sampling,
                             std::int64_t position) {
  if (logits.empty())
    throw core::Error(core::Code::invalid_argument, "there is no token to choose").in("logits");
  const kernels::Choice choice =
      kernels::sample(logits, params_of(sampling, position), candidates_);
  if (choice.token < 0)
    throw core::Error(core::Code::internal, "a logit is not a number, or every token is forbidden")
        .in("logits");
  return choice.token;
}

}  // namespace rose::model
