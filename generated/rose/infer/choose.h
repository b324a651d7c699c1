// Read one row of logits as a request asks.

#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "rose/core/parallel.h"
#include "rose/infer/sampling.h"

namespace rose::infer {

/// Kept between calls, so that they do not allocate.
struct ChooseScratch {
  std::vector<std::pair<float, std::int32_t>> candidates, top;
  std::vector<float> model;  // the logits before they were adjusted
  std::vector<std::int32_t> ids;
  std::vector<float> logprobs;
};

struct RowChoice {
  std::int32_t token = -1;  ///< -1: a logit is NaN, or every token is forbidden
  float logprob = 0.0f;
  std::span<const std::int32_t> top_ids;  ///< the likeliest first; they live in the scratch
  std::span<const float> top_logprobs;
};

/// logits [V], which it adjusts in place.
RowChoice choose(std::span<float> logits, const RowSampling& row, ChooseScratch& scratch,
                 core::ThreadPool& pool);

}  // namespace rose::infer
