// Score tensors of logits.

#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

namespace rose::kernels::autograd {

// Logits are [R, V], f32; targets are int32 [R].

/// losses [R] = -log softmax(logits)[target], in nats; 0, and without gradient, where the target is negative. Saves the gradient.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets);

/// The log-probability of each target, and the log-sum-exp of each row, [R] both. No gradient.
std::pair<at::Tensor, at::Tensor> token_logprob(const at::Tensor& logits,
                                                const at::Tensor& targets);
/// Each row as probabilities; f32 on a CPU, f32, bf16 or f16 on a GPU. Saves them.
at::Tensor softmax(const at::Tensor& x);

}  // namespace rose::kernels::autograd
