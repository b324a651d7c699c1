// The whole model in double, with the size of every sum.

#pragma once

#include <cmath>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "labs/autodiff/vjp.h"
#include "rose/model/forward.h"
#include "rose/trainer/objective.h"

namespace rose::labs {

using Named = std::map<std::string, Doubles>;

/// A model's weights in double by canonical name, with the gradient of a scaled sum of losses. Untied heads included.
struct DoubleModel {
  model::Config config;
  Named weight, gradient, magnitude;  ///< magnitude: the sum of absolute terms behind each gradient
  Doubles frequencies;
  double z_loss = 0.0;

  explicit DoubleModel(const model::WeightSet& weights);
  void zero_gradients();
  /// As Compute::accumulate.
  trainer::LossSum accumulate(const trainer::MicroBatch& batch, double scale);

 private:
  // One sequence forward and back.
  struct Kept {  // what one block's way back needs
    Doubles x, normed, q_raw, k_raw, q, k, v, lse, attended, middle, ffn_normed, gate, up, inner;
  };
  const Doubles& w(const std::string& name) const;  ///< empty when the family has none
  Doubles product(const std::string& name, const Doubles& x) const;
  Doubles product_back(const std::string& name, const Doubles& x, const Doubles& y_bar);
  Doubles normed(const std::string& name, const Doubles& x) const;
  Doubles normed_back(const std::string& name, const Doubles& x, const Doubles& y_bar);
  Doubles turned(const Doubles& x, std::span<const int> positions, std::size_t heads,
                 double way) const;
  Doubles block(const std::string& at, const Doubles& x, std::span<const int> positions,
                Kept& kept) const;
  Doubles block_back(const std::string& at, const Doubles& bar, std::span<const int> positions,
                     const Kept& kept);
  void lookup_back(const std::string& table, std::span<const int> ids, const Doubles& bar);
  trainer::LossSum sequence(const trainer::MicroBatch& batch, std::size_t begin, std::size_t end,
                            double scale);
  std::size_t rows_ = 0;  // of the sequence at hand
};

// Copy the weights.
inline Doubles plus(Doubles a, const Doubles& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

inline Doubles absolute(Doubles a) {
  for (double& x : a) x = std::abs(x);
  return a;
}

inline DoubleModel::DoubleModel(const model::WeightSet& weights) : config(weights.config()) {
  for (const model::Parameter& p : weights.parameters())
    weight[p.name] = Doubles(p.f32().begin(), p.f32().end());
  if (config.family != model::Family::gpt2) {
    const model::RopeSetup rope = model::rope_setup(config);
    frequencies.assign(rope.inv_freq.begin(), rope.inv_freq.end());
  }
  zero_gradients();
}

inline void DoubleModel::zero_gradients() {
  for (const auto& [name, values] : weight)
    gradient[name].assign(values.size(), 0.0), magnitude[name].assign(values.size(), 0.0);
}

inline const Doubles& DoubleModel::w(const std::string& name) const {
  static const Doubles none;
  const auto found = weight.find(name);
  return found == weight.end() ? none : found->second;
}

// Products, norms and rotations, with what their gradients add up.
inline Doubles DoubleModel::product(const std::string& name, const Doubles& x) const {
  const std::string head = config.tied_head && name == "head" ? "embed" : name;
  const std::size_t k = x.size() / rows_, n = w(head + ".weight").size() / k;
  return linear(x, w(head + ".weight"), w(name + ".bias"), rows_, n, k);
}

inline Doubles DoubleModel::product_back(const std::string& name, const Doubles& x,
                                         const Doubles& y_bar) {
  const std::string head = config.tied_head && name == "head" ? "embed" : name;
  const std::size_t k = x.size() / rows_, n = y_bar.size() / rows_;
  LinearGradients g = linear_vjp(x, w(head + ".weight"), y_bar, rows_, n, k);
  const LinearGradients size =
      linear_vjp(absolute(x), w(head + ".weight"), absolute(y_bar), rows_, n, k);
  gradient[head + ".weight"] = plus(gradient[head + ".weight"], g.w);
  magnitude[head + ".weight"] = plus(magnitude[head + ".weight"], size.w);
  if (!w(name + ".bias").empty()) {
    gradient[name + ".bias"] = plus(gradient[name + ".bias"], g.b);
    magnitude[name + ".bias"] = plus(magnitude[name + ".bias"], size.b);
  }
  return g.x;
}

inline Doubles DoubleModel::normed(const std::string& name, const Doubles& x) const {
  const Doubles &by = w(name + ".weight"), &add = w(name + ".bias");
  Doubles y = norm(x, by, x.size() / by.size(), static_cast<double>(config.norm_eps),
                   config.norm == model::NormKind::layernorm);
  for (std::size_t i = 0; i < y.size() && !add.empty(); ++i) y[i] += add[i % add.size()];
  return y;
}

inline Doubles DoubleModel::normed_back(const std::string& name, const Doubles& x,
                                        const Doubles& y_bar) {
  const Doubles& by = w(name + ".weight");
  const std::size_t c = by.size();
  const bool center = config.norm == model::NormKind::layernorm;
  NormGradients g =
      norm_vjp(x, by, y_bar, x.size() / c, static_cast<double>(config.norm_eps), center);
  const Doubles hat =
      norm(x, Doubles(c, 1.0), x.size() / c, static_cast<double>(config.norm_eps), center);
  gradient[name + ".weight"] = plus(gradient[name + ".weight"], g.w);
  for (std::size_t i = 0; i < x.size(); ++i)
    magnitude[name + ".weight"][i % c] += std::abs(hat[i] * y_bar[i]);
  if (center) gradient[name + ".bias"] = plus(gradient[name + ".bias"], g.b);
  for (std::size_t i = 0; i < x.size() && center; ++i)
    magnitude[name + ".bias"][i % c] += std::abs(y_bar[i]);
  return g.x;
}

inline Doubles DoubleModel::turned(const Doubles& x, std::span<const int> positions,
                                   std::size_t heads, double way) const {
  if (frequencies.empty()) return x;
  std::vector<int> each;
  for (const int p : positions) each.insert(each.end(), heads, p);
  return rope(x, each, frequencies, way);
}

// A block, and the way back through it.
inline Doubles DoubleModel::block(const std::string& at, const Doubles& x,
                                  std::span<const int> positions, Kept& s) const {
  const auto h = static_cast<std::size_t>(config.heads),
             g = static_cast<std::size_t>(config.kv_heads),
             d = static_cast<std::size_t>(config.head_dim);
  s.x = x;
  s.normed = normed(at + "attn_norm", x);
  s.q_raw = product(at + "attn.q", s.normed), s.k_raw = product(at + "attn.k", s.normed),
  s.v = product(at + "attn.v", s.normed);
  s.q = turned(config.qk_norm ? normed(at + "attn.q_norm", s.q_raw) : s.q_raw, positions, h, 1.0);
  s.k = turned(config.qk_norm ? normed(at + "attn.k_norm", s.k_raw) : s.k_raw, positions, g, 1.0);
  s.attended = attention(s.q, s.k, s.v, rows_, h, g, d, &s.lse);
  s.middle = plus(x, product(at + "attn.o", s.attended));
  s.ffn_normed = normed(at + "ffn_norm", s.middle);
  s.up = product(at + "ffn.up", s.ffn_normed);
  const bool gated = config.activation == model::Activation::silu;
  if (gated) s.gate = product(at + "ffn.gate", s.ffn_normed);
  s.inner = gated ? silu_multiply(s.gate, s.up)
                  : gelu(s.up, config.activation == model::Activation::gelu_tanh);
  return plus(s.middle, product(at + "ffn.down", s.inner));
}

inline Doubles DoubleModel::block_back(const std::string& at, const Doubles& bar,
                                       std::span<const int> positions, const Kept& s) {
  const auto h = static_cast<std::size_t>(config.heads),
             g = static_cast<std::size_t>(config.kv_heads),
             d = static_cast<std::size_t>(config.head_dim);
  const Doubles inner_bar = product_back(at + "ffn.down", s.inner, bar);
  Doubles normed_bar;
  if (config.activation == model::Activation::silu) {
    const auto [gate_bar, up_bar] = silu_multiply_vjp(s.gate, s.up, inner_bar);
    normed_bar = plus(product_back(at + "ffn.gate", s.ffn_normed, gate_bar),
                      product_back(at + "ffn.up", s.ffn_normed, up_bar));
  } else {
    normed_bar =
        product_back(at + "ffn.up", s.ffn_normed,
                     gelu_vjp(s.up, inner_bar, config.activation == model::Activation::gelu_tanh));
  }
  const Doubles middle_bar = plus(bar, normed_back(at + "ffn_norm", s.middle, normed_bar));
  const Doubles attended_bar = product_back(at + "attn.o", s.attended, middle_bar);
  AttentionGradients a =
      attention_vjp(s.q, s.k, s.v, s.attended, s.lse, attended_bar, rows_, h, g, d);
  a.q = turned(a.q, positions, h, -1.0), a.k = turned(a.k, positions, g, -1.0);
  if (config.qk_norm)
    a.q = normed_back(at + "attn.q_norm", s.q_raw, a.q),
    a.k = normed_back(at + "attn.k_norm", s.k_raw, a.k);
  const Doubles back = plus(
      plus(product_back(at + "attn.q", s.normed, a.q), product_back(at + "attn.k", s.normed, a.k)),
      product_back(at + "attn.v", s.normed, a.v));
  return plus(middle_bar, normed_back(at + "attn_norm", s.x, back));
}

inline void DoubleModel::lookup_back(const std::string& table, std::span<const int> ids,
                                     const Doubles& bar) {
  const std::size_t c = static_cast<std::size_t>(config.hidden), v = weight[table].size() / c;
  gradient[table] = plus(gradient[table], embedding_vjp(ids, bar, v, c));
  magnitude[table] = plus(magnitude[table], embedding_vjp(ids, absolute(bar), v, c));
}

// A sequence, its losses, and back.
inline trainer::LossSum DoubleModel::sequence(const trainer::MicroBatch& batch, std::size_t begin,
                                              std::size_t end, double scale) {
  rows_ = end - begin;
  const auto c = static_cast<std::size_t>(config.hidden),
             v = static_cast<std::size_t>(config.vocab_size);
  const auto ids = batch.ids.subspan(begin, rows_),
             positions = batch.positions.subspan(begin, rows_);
  Doubles x = embedding(ids, w("embed.weight"), c);
  if (config.family == model::Family::gpt2)
    x = plus(x, embedding(positions, w("pos_embed.weight"), c));
  std::vector<Kept> kept(static_cast<std::size_t>(config.layers));
  const auto name = [](std::size_t l) { return "layers." + std::to_string(l) + "."; };
  for (std::size_t l = 0; l < kept.size(); ++l) x = block(name(l), x, positions, kept[l]);
  const Doubles hidden = normed("norm", x), logits = product("head", hidden);
  trainer::LossSum sum;
  Doubles bar(logits.size());
  for (std::size_t r = 0; r < rows_; ++r) {
    const int target = batch.targets[begin + r];
    if (target < 0) continue;
    const double weight_t = static_cast<double>(trainer::weight_of(batch, begin + r));
    double total = 0.0;
    for (std::size_t j = 0; j < v; ++j) total += std::exp(logits[r * v + j]);
    const double lse = std::log(total);
    sum.loss += weight_t * (lse - logits[r * v + static_cast<std::size_t>(target)]);
    sum.weight += weight_t, sum.z += weight_t * lse * lse, ++sum.tokens;
    for (std::size_t j = 0; j < v; ++j)
      bar[r * v + j] =
          scale * weight_t * (1 + 2 * z_loss * lse) * std::exp(logits[r * v + j] - lse);
    bar[r * v + static_cast<std::size_t>(target)] -= scale * weight_t;
  }
  Doubles x_bar = normed_back("norm", x, product_back("head", hidden, bar));
  for (std::size_t l = kept.size(); l-- > 0;)
    x_bar = block_back(name(l), x_bar, positions, kept[l]);
  lookup_back("embed.weight", ids, x_bar);
  if (config.family == model::Family::gpt2) lookup_back("pos_embed.weight", positions, x_bar);
  return sum;
}

inline trainer::LossSum DoubleModel::accumulate(const trainer::MicroBatch& batch, double scale) {
  trainer::LossSum sum;
  for (std::size_t s = 0; s + 1 < batch.row_offsets.size(); ++s)
    sum += sequence(batch, static_cast<std::size_t>(batch.row_offsets[s]),
                    static_cast<std::size_t>(batch.row_offsets[s + 1]), scale);
  return sum;
}

}  // namespace rose::labs
