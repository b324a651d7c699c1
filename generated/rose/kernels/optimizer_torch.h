// Step through tensors.

#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "rose/kernels/adamw.h"
#include "rose/kernels/cast.h"
#include "rose/kernels/muon.h"

namespace rose::kernels::autograd {

// Weights, moments and gradients without gaps; f32 on a CPU. On a GPU a weight may be bf16. `scale`, one f32 number on
// the device of the weight, multiplies the gradient: see gradient_norm.

/// kernels::adamw in place. A bf16 weight is rounded by chance under `by_chance`, else to nearest.
void adamw(const at::Tensor& weight, const at::Tensor& gradient, const at::Tensor& first,
           const at::Tensor& second, const AdamWStep& step,
           const std::optional<at::Tensor>& scale = {},
           const std::optional<RoundingKey>& by_chance = {});

/// kernels::muon in place, of a matrix.
void muon(const at::Tensor& weight, const at::Tensor& gradient, const at::Tensor& momentum,
          const MuonStep& step, const std::optional<at::Tensor>& scale = {});

/// f32 [2]: the length of all gradients together, and limit / length where that is below 1, else 1.
at::Tensor gradient_norm(at::TensorList gradients, double limit);

/// bf16, each number one of its two neighbours, by chance.
at::Tensor to_bf16_stochastic(const at::Tensor& x, const RoundingKey& key);

}  // namespace rose::kernels::autograd
