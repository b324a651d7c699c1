// What a family settles.

#pragma once

#include "rose/model/files/config.h"

namespace rose::trainer {

/// The shape with what its family settles: norms, activation, biases, query and key norms.
inline model::Config fresh_shape(model::Config shape) {
  using model::Family;
  const bool gpt2 = shape.family == Family::gpt2;
  shape.norm = gpt2 ? model::NormKind::layernorm : model::NormKind::rmsnorm;
  shape.activation = gpt2 ? model::Activation::gelu_tanh : model::Activation::silu;
  shape.o_bias = shape.mlp_bias = gpt2;
  shape.qkv_bias = gpt2 || shape.family == Family::qwen2;
  shape.qk_norm = shape.family == Family::qwen3;
  if (gpt2) shape.tied_head = true;
  return shape;
}

}  // namespace rose::trainer
