// The backward pass of every family.

#include "rose/model/backward.h"

#include <fmt/format.h>

#include <algorithm>

#include "rose/core/error.h"
#include "rose/kernels/activation_backward.h"
#include "rose/kernels/attention_backward.h"
#include "rose/kernels/embedding_backward.h"
#include "rose/kernels/linear_backward.h"
#include "rose/kernels/norm_backward.h"
#include "rose/kernels/rope.h"

#include "rose/kernels/dropout.h"
#include "rose/kernels/linear.h"
#include "rose/model/adapter_backward.h"
#include "rose/model/adapter_dropout.h"
#include "rose/model/weights.h"

namespace rose::model {

// Cut the flat array into windows.
Gradients::Gradients(const WeightSet& weights)
    : Gradients(weights, [](const Parameter&) { return true; }) {}

Gradients::Gradients(const WeightSet& weights,
                     const std::function<bool(const Parameter&)>& wanted) {
  std::int64_t total = 0;
  for (const Parameter& parameter : weights.parameters())
    total += wanted(parameter) ? parameter.elements : 0;
  all_.assign(static_cast<std::size_t>(total), 0.0f);
  std::span<float> rest(all_);
  for (const Parameter& parameter : weights.parameters()) {
    const auto n = static_cast<std::size_t>(wanted(parameter) ? parameter.elements : 0);
    windows_.push_back({parameter.name, rest.first(n)});
    rest = rest.subspan(n);
  }
  embed = find("embed.weight");
  pos_embed = find("pos_embed.weight");
  norm = find("norm.weight");
  norm_bias = find("norm.bias");
  head = weights.config().tied_head ? embed : find("head.weight");
  for (std::int64_t l = 0; l < weights.config().layers; ++l) {
    const auto at = [&](const char* name) { return find(fmt::format("layers.{}.{}", l, name)); };
    layers_.push_back({at("attn_norm.weight"), at("attn_norm.bias"),     at("attn.q.weight"),
                       at("attn.k.weight"),    at("attn.v.weight"),      at("attn.o.weight"),
                       at("attn.q.bias"),      at("attn.k.bias"),        at("attn.v.bias"),
                       at("attn.o.bias"),      at("attn.q_norm.weight"), at("attn.k_norm.weight"),
                       at("ffn_norm.weight"),  at("ffn_norm.bias"),      at("ffn.gate.weight"),
                       at("ffn.up.weight"),    at("ffn.down.weight"),    at("ffn.gate.bias"),
                       at("ffn.up.bias"),      at("ffn.down.bias")});
  }
}

void Gradients::zero() {
  std::fill(all_.begin(), all_.end(), 0.0f);
}

std::span<float> Gradients::find(std::string_view name) const {
  for (const Window& window : windows_) {
    if (window.name == name) return window.values;
  }
  return {};
}

// Grow the temporaries when a larger batch comes.
void BackwardWorkspace::reserve(std::int64_t tokens) {
  const std::int64_t c = config_.hidden, f = config_.ffn, d = config_.head_dim;
  const std::int64_t qd = config_.heads * d, kd = config_.kv_heads * d;
  const std::array<std::pair<std::span<float>*, std::int64_t>, 9> parts{{{&dx, c},
                                                                         {&d_normed, c},
                                                                         {&d_attn, qd},
                                                                         {&dq, qd},
                                                                         {&dk, kd},
                                                                         {&dv, kd},
                                                                         {&d_gate, f},
                                                                         {&d_up, f},
                                                                         {&turn_back, d / 2}}};
  std::int64_t total = 0;
  for (const auto& [span, width] : parts) total += width * tokens;
  if (buffer_.size() < static_cast<std::size_t>(total))
    buffer_.resize(static_cast<std::size_t>(total));
  std::span<float> rest(buffer_);
  for (const auto& [span, width] : parts) {
    *span = rest.first(static_cast<std::size_t>(width * tokens));
    rest = rest.subspan(static_cast<std::size_t>(width * tokens));
  }
}

namespace {

using kernels::Into;

// Go back through one linear layer with its adapter, or one norm of this family.
struct Pass {
  const Config& config;
  std::int64_t tokens;
  BackwardWorkspace& work;
  // With an adapter: where it is, what it gets, and in which block we are.
  const Adapter* adapter = nullptr;
  Adapter* changes = nullptr;
  const LayerWeights* layer = nullptr;
  std::size_t index = 0;
  const kernels::Dropout* dropout = nullptr;  ///< of the pass; null: none

  void linear(std::span<const float> x, const kernels::MatrixView& w, std::span<const float> dy,
              std::span<float> dx, Into into, std::span<float> dw, std::span<float> db) const {
    if (!dw.empty())
      kernels::linear_backward_weight(x, dy, tokens, dw, db, work.pool(), work.scratch);
    kernels::linear_backward_input(dy, tokens, w, dx, into, work.pool(), work.scratch);
    if (adapter != nullptr && layer != nullptr) through_pair(x, w, dy, dx);
  }

  // Add what the pair of a matrix gets, and what it gives back.
  void through_pair(std::span<const float> input, const kernels::MatrixView& w,
                    std::span<const float> dy, std::span<float> dx) const {
    const std::array<const kernels::MatrixView*, linears> views{
        &layer->q, &layer->k, &layer->v, &layer->o, &layer->gate, &layer->up, &layer->down};
    const auto which = static_cast<std::size_t>(std::ranges::find(views, &w) - views.begin());
    const LowRank& pair = adapter->layers[index][which];
    if (pair.a.empty()) return;
    const kernels::MatrixView a{pair.a.data(), kernels::DType::f32, adapter->rank, w.cols},
        b{pair.b.data(), kernels::DType::f32, w.rows, adapter->rank};
    LowRank& to = changes->layers[index][which];
    std::vector<float> h(static_cast<std::size_t>(tokens * adapter->rank)), d_h(h.size()), thinned;
    std::span<const float> x = input;
    kernels::Dropout how;
    if (dropout != nullptr) {
      how = dropout_of(*dropout, index, static_cast<Linear>(which));
      thinned.resize(input.size());
      kernels::dropout(input, how, 0, thinned, work.pool());
      x = thinned;
    }
    kernels::linear(x, tokens, a, nullptr, h, work.pool());
    for (float& value : h) value *= adapter->scale;
    kernels::linear_backward_weight(h, dy, tokens, to.b, {}, work.pool(), work.scratch);
    kernels::linear_backward_input(dy, tokens, b, d_h, Into::overwrite, work.pool(), work.scratch);
    for (float& value : d_h) value *= adapter->scale;
    kernels::linear_backward_weight(x, d_h, tokens, to.a, {}, work.pool(), work.scratch);
    if (dropout == nullptr)
      return kernels::linear_backward_input(d_h, tokens, a, dx, Into::add, work.pool(),
                                            work.scratch);
    kernels::linear_backward_input(d_h, tokens, a, thinned, Into::overwrite, work.pool(),
                                   work.scratch);
    kernels::dropout(thinned, how, 0, thinned, work.pool());
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] += thinned[i];
  }

  void norm(std::span<const float> x, const float* weight, std::span<const float> mean,
            std::span<const float> inv, std::span<const float> dy, std::span<float> dx, Into into,
            std::span<float> dweight, std::span<float> dbias) const {
    const std::span<const float> w(weight, static_cast<std::size_t>(config.hidden));
    if (config.norm == NormKind::layernorm) {
      kernels::layernorm_backward(x, tokens, w, mean, inv, dy, dx, into, dweight, dbias,
                                  work.pool());
    } else {
      kernels::rmsnorm_backward(x, tokens, w, inv, dy, dx, into, dweight, work.pool());
    }
  }
};

// Go back through a feed-forward branch.
void ffn_backward(const Pass& pass, const LayerWeights& w, const SavedLayer& saved,
                  const Gradients::Layer& g) {
  BackwardWorkspace& work = pass.work;
  pass.linear(saved.activated, w.down, work.dx, work.d_up, Into::overwrite, g.down, g.down_bias);
  if (w.gate.data != nullptr) {
    if (pass.config.activation != Activation::silu) {
      throw core::Error(core::Code::unsupported, "only SiLU gates can be trained").in("backward");
    }
    kernels::silu_multiply_backward(saved.gate, saved.up, work.d_up, work.d_gate, work.d_up,
                                    work.pool());
    pass.linear(saved.ffn_normed, w.gate, work.d_gate, work.d_normed, Into::overwrite, g.gate,
                g.gate_bias);
    pass.linear(saved.ffn_normed, w.up, work.d_up, work.d_normed, Into::add, g.up, g.up_bias);
  } else {
    const auto kind =
        pass.config.activation == Activation::gelu ? kernels::Gelu::exact : kernels::Gelu::tanh;
    kernels::gelu_backward(saved.up, work.d_up, work.d_up, kind, work.pool());
    pass.linear(saved.ffn_normed, w.up, work.d_up, work.d_normed, Into::overwrite, g.up, g.up_bias);
  }
  pass.norm(saved.middle, w.ffn_norm, saved.ffn_norm_mean, saved.ffn_norm_inv, work.d_normed,
            work.dx, Into::add, g.ffn_norm, g.ffn_norm_bias);
}

// Go back through an attention branch.
void attention_branch_backward(const Pass& pass, const Batch& batch, const Saved& all,
                               const LayerWeights& w, const SavedLayer& saved,
                               const Gradients::Layer& g) {
  const Config& c = pass.config;
  BackwardWorkspace& work = pass.work;
  pass.linear(saved.attn_out, w.o, work.dx, work.d_attn, Into::overwrite, g.o, g.o_bias);
  const kernels::AttentionShape shape{c.heads, c.kv_heads, c.head_dim,
                                      1.0f / std::sqrt(static_cast<float>(c.head_dim))};
  kernels::attention_backward(saved.q, saved.k, saved.v, saved.attn_out, saved.lse, work.d_attn,
                              batch.row_offsets, shape, work.dq, work.dk, work.dv, work.pool(),
                              work.scratch);
  if (!all.rope_cos.empty()) {
    kernels::rope(work.dq, pass.tokens, c.heads, c.head_dim, all.rope_cos, work.turn_back,
                  work.pool());
    kernels::rope(work.dk, pass.tokens, c.kv_heads, c.head_dim, all.rope_cos, work.turn_back,
                  work.pool());
  }
  if (c.qk_norm) {
    const auto width = static_cast<std::size_t>(c.head_dim);
    kernels::rmsnorm_backward(saved.q_raw, pass.tokens * c.heads, {w.q_norm, width}, saved.q_inv,
                              work.dq, work.dq, Into::overwrite, g.q_norm, work.pool());
    kernels::rmsnorm_backward(saved.k_raw, pass.tokens * c.kv_heads, {w.k_norm, width}, saved.k_inv,
                              work.dk, work.dk, Into::overwrite, g.k_norm, work.pool());
  }
  pass.linear(saved.attn_normed, w.q, work.dq, work.d_normed, Into::overwrite, g.q, g.q_bias);
  pass.linear(saved.attn_normed, w.k, work.dk, work.d_normed, Into::add, g.k, g.k_bias);
  pass.linear(saved.attn_normed, w.v, work.dv, work.d_normed, Into::add, g.v, g.v_bias);
  pass.norm(saved.input, w.attn_norm, saved.attn_norm_mean, saved.attn_norm_inv, work.d_normed,
            work.dx, Into::add, g.attn_norm, g.attn_norm_bias);
}

}  // namespace

// Go back through the head, and from the last block to the embedding.
void head_backward(const WeightSet& weights, std::span<const float> hidden_rows, std::int64_t rows,
                   std::span<const float> d_logits, std::span<float> d_hidden_rows,
                   Gradients& gradients, BackwardWorkspace& workspace) {
  const Pass pass{weights.config(), rows, workspace};
  pass.linear(hidden_rows, weights.head(), d_logits, d_hidden_rows, Into::overwrite, gradients.head,
              {});
}

namespace {

void go_back(Pass pass, const WeightSet& weights, const Batch& batch, const Saved& saved,
             std::span<const float> d_hidden, Gradients& gradients) {
  BackwardWorkspace& work = pass.work;
  if (saved.tokens != pass.tokens ||
      d_hidden.size() != static_cast<std::size_t>(pass.tokens * pass.config.hidden)) {
    throw core::Error(core::Code::invalid_argument, "the saved activations are not of this batch")
        .in("backward");
  }
  work.reserve(pass.tokens);
  if (!saved.rope_sin.empty())
    std::ranges::transform(saved.rope_sin, work.turn_back.begin(), std::negate<>());
  pass.norm(saved.final_input, weights.norm(), saved.final_mean, saved.final_inv, d_hidden, work.dx,
            Into::overwrite, gradients.norm, gradients.norm_bias);
  for (std::size_t l = weights.layers().size(); l-- > 0;) {
    pass.layer = &weights.layers()[l], pass.index = l;
    ffn_backward(pass, *pass.layer, saved.layers[l], gradients.layer(l));
    attention_branch_backward(pass, batch, saved, *pass.layer, saved.layers[l], gradients.layer(l));
  }
  if (!gradients.embed.empty())
    kernels::embedding_backward(batch.ids, work.dx, gradients.embed, pass.config.hidden,
                                work.pool());
  if (!gradients.pos_embed.empty())
    kernels::embedding_backward(batch.positions, work.dx, gradients.pos_embed, pass.config.hidden,
                                work.pool());
}

}  // namespace

void backward(const WeightSet& weights, const Batch& batch, const Saved& saved,
              std::span<const float> d_hidden, Gradients& gradients, BackwardWorkspace& workspace) {
  const auto tokens = static_cast<std::int64_t>(batch.ids.size());
  go_back({weights.config(), tokens, workspace}, weights, batch, saved, d_hidden, gradients);
}

void backward(const WeightSet& weights, const Adapter& adapter, const Batch& batch,
              const Saved& saved, std::span<const float> d_hidden, Gradients& gradients,
              Adapter& changes, BackwardWorkspace& workspace) {
  check_adapter(weights.config(), adapter);
  check_adapter(weights.config(), changes);
  const auto tokens = static_cast<std::int64_t>(batch.ids.size());
  Pass pass{weights.config(), tokens, workspace, &adapter, &changes};
  pass.dropout = batch.adapter_dropout;
  go_back(pass, weights, batch, saved, d_hidden, gradients);
}

Adapter zeros_like(const Adapter& adapter) {
  Adapter out = adapter;
  for (LayerAdapter& layer : out.layers) {
    for (LowRank& pair : layer) std::ranges::fill(pair.a, 0.0f), std::ranges::fill(pair.b, 0.0f);
  }
  return out;
}

}  // namespace rose::model
