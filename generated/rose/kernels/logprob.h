// Say how likely a token was.

#pragma once

#include <cstdint>
#include <span>

#include "rose/core/parallel.h"

namespace rose::kernels {

/// out[r] = logits[r, targets[r]] - log(sum over v of exp(logits[r, v])), in nats; logits is [R, V], fp32.
/// The sum is taken over tiles of 128 columns, merged ascending. lse [R], when not empty, receives the logarithm.
void token_logprob(std::span<const float> logits, std::int64_t rows,
                   std::span<const std::int32_t> targets, std::span<float> out,
                   std::span<float> lse, core::ThreadPool& pool);

}  // namespace rose::kernels
