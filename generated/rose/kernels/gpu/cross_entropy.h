// Score tokens, and the gradient of the score, on a GPU.

#pragma once

#include <cstdint>

#include "rose/kernels/gpu/stream.h"

namespace rose::kernels::gpu {

/// logprob[r] = logits[r, targets[r]] - lse[r], lse[r] = log(sum over v of exp(logits[r, v])), in nats; logits is [R, V] f32.
/// A target outside [0, V) gives NaN. Either output may be null.
void token_logprob(const Matrix& logits, const std::int32_t* targets, float* logprob, float* lse,
                   Stream stream);

/// What a training objective adds: row r counts weights[r] times (null: once), and z * lse^2 is added to its loss, which keeps
/// log-sum-exps near zero.
struct LossTerms {
  const float* weights = nullptr;  ///< [R], in device memory
  float z = 0;
};

/// losses[r] = -logprob[r], the same bits; dlogits[r, v] = scale * (softmax(logits[r])[v] - (v == targets[r])), of the terms' sum
/// where there are terms. dlogits is f32, bf16 or f16 and may be logits itself. A negative target is ignored: loss and gradient are zero.
/// losses and lse may be null. The terms do not change `losses`.
void cross_entropy(const Matrix& logits, const std::int32_t* targets, float scale,
                   const Matrix& dlogits, float* losses, float* lse, Stream stream,
                   const LossTerms& terms = {});

}  // namespace rose::kernels::gpu
