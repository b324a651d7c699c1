// Walk a text through a model and write down every shape.

#pragma once

#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace rose::labs {

using Shape = std::vector<std::int64_t>;

inline std::int64_t elements(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

// The letters of one model.
struct ModelShape {
  std::int64_t vocab, layers, hidden, heads, kv_heads, head_dim, ffn;  ///< V, L, C, H, G, D, F
  bool tied_head = false, qk_norm = false;
};

// One step: the weight it uses, if any, and what it leaves.
struct Step {
  std::string weight;       ///< canonical name, empty when there is none
  Shape weight_shape;       ///< [out, in]
  Shape result;             ///< of T tokens
  bool is_product = false;  ///< a matrix product, as opposed to a look-up or a norm
};

// The steps of a model without biases, in order.
inline std::vector<Step> walk(const ModelShape& m, std::int64_t t) {
  const std::int64_t queries = m.heads * m.head_dim, keys = m.kv_heads * m.head_dim;
  std::vector<Step> steps = {{"embed.weight", {m.vocab, m.hidden}, {t, m.hidden}}};
  for (std::int64_t layer = 0; layer < m.layers; ++layer) {
    const std::string block = "layers." + std::to_string(layer) + ".";
    const auto norm = [&](const char* name, std::int64_t width, Shape result) {
      steps.push_back({block + name, {width}, std::move(result)});
    };
    const auto linear = [&](const char* name, std::int64_t out, std::int64_t in, Shape result) {
      steps.push_back({block + name, {out, in}, std::move(result), true});
    };
    norm("attn_norm.weight", m.hidden, {t, m.hidden});
    linear("attn.q.weight", queries, m.hidden, {t, m.heads, m.head_dim});
    linear("attn.k.weight", keys, m.hidden, {t, m.kv_heads, m.head_dim});
    linear("attn.v.weight", keys, m.hidden, {t, m.kv_heads, m.head_dim});
    if (m.qk_norm) {
      norm("attn.q_norm.weight", m.head_dim, {t, m.heads, m.head_dim});
      norm("attn.k_norm.weight", m.head_dim, {t, m.kv_heads, m.head_dim});
    }
    steps.push_back({"", {}, {t, m.heads, m.head_dim}});  // attention itself has no weights
    linear("attn.o.weight", m.hidden, queries, {t, m.hidden});
    norm("ffn_norm.weight", m.hidden, {t, m.hidden});
    linear("ffn.gate.weight", m.ffn, m.hidden, {t, m.ffn});
    linear("ffn.up.weight", m.ffn, m.hidden, {t, m.ffn});
    linear("ffn.down.weight", m.hidden, m.ffn, {t, m.hidden});
  }
  steps.push_back({"norm.weight", {m.hidden}, {t, m.hidden}});
  steps.push_back({m.tied_head ? "" : "head.weight", {m.vocab, m.hidden}, {t, m.vocab}, true});
  return steps;
}

// Parameters, operations and bytes, from the walk.
inline std::int64_t parameters(const ModelShape& m) {
  std::int64_t sum = 0;
  for (const Step& step : walk(m, 1)) sum += step.weight.empty() ? 0 : elements(step.weight_shape);
  return sum;
}

/// Of one token that has `earlier` tokens before it, in a forward pass.
inline std::int64_t forward_flops(const ModelShape& m, std::int64_t earlier) {
  std::int64_t weights = 0;
  for (const Step& step : walk(m, 1)) weights += step.is_product ? elements(step.weight_shape) : 0;
  return 2 * weights + 4 * m.layers * m.heads * m.head_dim * earlier;
}

inline std::int64_t kv_bytes_per_token(const ModelShape& m, std::int64_t bytes_per_number) {
  return 2 * m.layers * m.kv_heads * m.head_dim * bytes_per_number;
}

}  // namespace rose::labs
