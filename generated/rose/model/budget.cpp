// Count parameters, bytes and operations before running anything.

#include "rose/model/budget.h"

#include <fmt/format.h>

namespace rose::model {

// List every tensor that a configuration implies.
std::vector<ExpectedTensor> expected_tensors(const Config& config) {
  const std::int64_t c = config.hidden, f = config.ffn;
  const std::int64_t q = config.heads * config.head_dim, kv = config.kv_heads * config.head_dim;
  std::vector<ExpectedTensor> list;
  const auto matrix = [&](const std::string& name, std::int64_t out, std::int64_t in, bool bias) {
    list.push_back({name + ".weight", {out, in}});
    if (bias) list.push_back({name + ".bias", {out}});
  };
  const auto norm = [&](const std::string& name, std::int64_t width, bool bias) {
    list.push_back({name + ".weight", {width}});
    if (bias) list.push_back({name + ".bias", {width}});
  };
  const bool centred = config.norm == NormKind::layernorm;
  matrix("embed", config.vocab_size, c, false);
  if (config.family == Family::gpt2) matrix("pos_embed", config.max_positions, c, false);
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string layer = fmt::format("layers.{}.", i);
    norm(layer + "attn_norm", c, centred);
    matrix(layer + "attn.q", q, c, config.qkv_bias);
    matrix(layer + "attn.k", kv, c, config.qkv_bias);
    matrix(layer + "attn.v", kv, c, config.qkv_bias);
    matrix(layer + "attn.o", c, q, config.o_bias);
    if (config.qk_norm) norm(layer + "attn.q_norm", config.head_dim, false);
    if (config.qk_norm) norm(layer + "attn.k_norm", config.head_dim, false);
    norm(layer + "ffn_norm", c, centred);
    if (config.family != Family::gpt2) matrix(layer + "ffn.gate", f, c, config.mlp_bias);
    matrix(layer + "ffn.up", f, c, config.mlp_bias);
    matrix(layer + "ffn.down", c, f, config.mlp_bias);
  }
  norm("norm", c, centred);
  if (!config.tied_head) matrix("head", config.vocab_size, c, false);
  return list;
}

// Add them up.
std::int64_t parameter_count(const Config& config) {
  std::int64_t total = 0;
  for (const ExpectedTensor& tensor : expected_tensors(config)) {
    std::int64_t elements = 1;
    for (const std::int64_t n : tensor.shape) elements *= n;
    total += elements;
  }
  return total;
}

std::int64_t matrix_parameters(const Config& config) {
  const std::int64_t attention = 2 * (config.heads + config.kv_heads) * config.head_dim * config.hidden;
  const std::int64_t feed_forward = (config.family == Family::gpt2 ? 2 : 3) * config.ffn * config.hidden;
  return config.layers * (attention + feed_forward) + config.vocab_size * config.hidden;
}

std::int64_t kv_bytes_per_token(const Config& config, std::int64_t element_bytes) {
  return 2 * config.layers * config.kv_heads * config.head_dim * element_bytes;
}

std::int64_t forward_flops(const Config& config, std::int64_t context, bool head) {
  const std::int64_t products = matrix_parameters(config) - (head ? 0 : config.vocab_size * config.hidden);
  const std::int64_t attention = config.layers * 2 * config.heads * config.head_dim * context;  // scores, values
  return 2 * (products + attention);
}

}  // namespace rose::model
