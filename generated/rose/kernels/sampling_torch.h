// Choose tokens from tensors of logits.

#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <utility>

#include "rose/kernels/sampling.h"

namespace rose::kernels::autograd {

// logits [R, V], f32, on a CPU or a GPU. Without gradients.

/// What requests ask, one entry a row, done to the logits in place.
void adjust_logits(const at::Tensor& logits, std::span<const LogitAdjustment> rows);

/// {tokens int32 [R], their log-probabilities in the distribution that was drawn from [R]}; one entry a row.
std::pair<at::Tensor, at::Tensor> sample(const at::Tensor& logits,
                                         std::span<const SamplingParams> rows);

/// {ids int32 [R, count], log-probabilities [R, count]} of the largest logits, equal ones by lowest id. A row with NaN gives -1.
std::pair<at::Tensor, at::Tensor> top_logprobs(const at::Tensor& logits, int count);

}  // namespace rose::kernels::autograd
