// Score tokens, and the gradient of the score, on a GPU.

#pragma once

#include <cstdint>

#include "rose/kernels/gpu/stream.h"

namespace rose::kernels::gpu {

/// logprob[r] = logits[r, targets[r]] - lse[r], lse[r] = log(sum over v of exp(logits[r, v])), in nats; logits is [R, V] f32.
/// A target outside [0, V) gives NaN. Either output may be null.
void token_logprob(const Matrix& logits, const std::int32_t* targets, float* logprob, float* lse,
                   Stream stream);

/// losses[r] = -logprob[r], the same bits; dlogits[r, v] = scale * (softmax(logits[r])[v] - (v == targets[r])). dlogits is f32 or
/// bf16 and may be logits itself. A negative target is ignored: loss and gradient are zero. losses and lse may be null.
void cross_entropy(const Matrix& logits, const std::int32_t* targets, float scale,
                   const Matrix& dlogits, float* losses, float* lse, Stream stream);

}  // namespace rose::kernels::gpu
