// Run the model forward.

#include "rose/model/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "rose/core/error.h"
#include "rose/kernels/activation.h"
#include "rose/kernels/attention.h"
#include "rose/kernels/embedding.h"
#include "rose/kernels/linear.h"
#include "rose/kernels/norm.h"
#include "rose/kernels/rope.h"

#include <cmath>

namespace rose::model {

namespace {

// Cut one buffer into many.
std::size_t count(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

/// Hands out consecutive spans; the first pass, over an empty buffer, only measures.
class Carver {
 public:
  explicit Carver(std::span<float> buffer) : buffer_(buffer) {}
  std::span<float> take(std::int64_t n) {
    const std::size_t at = used_;
    used_ += (count(n) + 15) / 16 * 16;  // whole cache lines
    return buffer_.size() < used_ ? std::span<float>() : buffer_.subspan(at, count(n));
  }
  std::size_t used() const { return used_; }

 private:
  std::span<float> buffer_;
  std::size_t used_ = 0;
};

/// Calls layout(carver) to measure, grows the buffer when it is too small, and calls it again to hand out.
template <class Layout>
void carve(std::vector<float>& buffer, const Layout& layout) {
  constexpr std::size_t line =
      64 / sizeof(float);  // vectors that straddle two lines cost two loads
  Carver measure{{}};
  layout(measure);
  if (buffer.size() < measure.used() + line) buffer.resize(measure.used() + line);
  const auto address = reinterpret_cast<std::uintptr_t>(buffer.data()) / sizeof(float);
  Carver hand{std::span<float>(buffer).subspan((line - address % line) % line)};
  layout(hand);
}

// Refuse a batch that cannot be meant.
void check(const Config& config, const Batch& batch, std::span<float> hidden) {
  const auto fail = [](std::string message) {
    throw core::Error(core::Code::invalid_argument, std::move(message)).in("forward");
  };
  const std::size_t tokens = batch.ids.size();
  if (batch.row_offsets.empty() || batch.row_offsets.front() != 0 ||
      batch.positions.size() != tokens ||
      static_cast<std::size_t>(batch.row_offsets.back()) != tokens ||
      !std::is_sorted(batch.row_offsets.begin(), batch.row_offsets.end())) {
    fail("ids, positions and row offsets do not describe the same tokens");
  }
  if (hidden.size() != tokens * count(config.hidden)) fail("hidden must hold one row per token");
  for (std::size_t s = 0; s + 1 < batch.row_offsets.size(); ++s) {
    for (auto t = count(batch.row_offsets[s]); t + 1 < count(batch.row_offsets[s + 1]); ++t) {
      if (batch.positions[t + 1] != batch.positions[t] + 1)
        fail("positions must be consecutive within a sequence");
    }
  }
  for (const std::int32_t p : batch.positions) {
    if (p < 0 || p >= config.max_positions) {
      throw core::Error(
          core::Code::out_of_range,
          fmt::format("position {} is outside the model's {} positions", p, config.max_positions))
          .in("forward");
    }
  }
}

// Normalise as the family does.
void normalise(const Config& config, std::span<const float> x, const float* weight,
               const float* bias, std::span<float> y, std::span<float> mean, std::span<float> inv,
               core::ThreadPool& pool) {
  const auto tokens = static_cast<std::int64_t>(x.size()) / config.hidden;
  const std::span<const float> w(weight, count(config.hidden));
  if (config.norm == NormKind::rmsnorm) {
    kernels::rmsnorm(x, tokens, w, config.norm_eps, y, inv, pool);
  } else {
    kernels::layernorm(x, tokens, w, {bias, count(config.hidden)}, config.norm_eps, y, mean, inv,
                       pool);
  }
}

}  // namespace

// Lay out what backward needs.
void Saved::reserve(const Config& config, std::int64_t t) {
  tokens = t;
  layers.resize(count(config.layers));
  const bool centred = config.norm == NormKind::layernorm;
  const std::int64_t c = config.hidden, f = config.ffn, h = config.heads, g = config.kv_heads,
                     d = config.head_dim;
  carve(buffer_, [&](Carver& from) {
    for (SavedLayer& layer : layers) {
      layer.input = from.take(t * c);
      layer.attn_norm_mean = from.take(centred ? t : 0);
      layer.attn_norm_inv = from.take(t);
      layer.attn_normed = from.take(t * c);
      layer.q_raw = from.take(config.qk_norm ? t * h * d : 0);
      layer.k_raw = from.take(config.qk_norm ? t * g * d : 0);
      layer.q_inv = from.take(config.qk_norm ? t * h : 0);
      layer.k_inv = from.take(config.qk_norm ? t * g : 0);
      layer.q = from.take(t * h * d);
      layer.k = from.take(t * g * d);
      layer.v = from.take(t * g * d);
      layer.lse = from.take(t * h);
      layer.attn_out = from.take(t * h * d);
      layer.middle = from.take(t * c);
      layer.ffn_norm_mean = from.take(centred ? t : 0);
      layer.ffn_norm_inv = from.take(t);
      layer.ffn_normed = from.take(t * c);
      layer.gate = from.take(config.family == Family::gpt2 ? 0 : t * f);
      layer.up = from.take(t * f);
      layer.activated = from.take(t * f);
    }
    final_input = from.take(t * c);
    final_mean = from.take(centred ? t : 0);
    final_inv = from.take(t);
    const std::int64_t turned = config.family == Family::gpt2 ? 0 : t * d / 2;
    rope_cos = from.take(turned);
    rope_sin = from.take(turned);
  });
}

// Lay out what every pass reuses.
Workspace::Workspace(const Config& config, core::ThreadPool& pool) : config_(config), pool_(&pool) {
  RopeSetup setup = rope_setup(config);
  inv_freq_ = std::move(setup.inv_freq);
  rope_scale_ = setup.scale;
}

void Workspace::reserve(std::int64_t tokens) {
  if (tokens <= tokens_) return;
  tokens_ = tokens;
  const std::int64_t qd = config_.heads * config_.head_dim,
                     kd = config_.kv_heads * config_.head_dim;
  carve(buffer_, [&](Carver& from) {
    x = from.take(tokens * config_.hidden);
    normed = from.take(tokens * config_.hidden);
    q = from.take(tokens * qd);
    k = from.take(tokens * kd);
    v = from.take(tokens * kd);
    attn_out = from.take(tokens * qd);
    projected = from.take(tokens * config_.hidden);
    gate = from.take(tokens * config_.ffn);
    up = from.take(tokens * config_.ffn);
    rope_cos = from.take(tokens * config_.head_dim / 2);
    rope_sin = from.take(tokens * config_.head_dim / 2);
  });
}

// Set up the rotation that a configuration asks for.
RopeSetup rope_setup(const Config& config) {
  RopeSetup setup;
  if (config.family == Family::gpt2) return setup;  // learned positions
  const RopeScaling& s = config.rope_scaling;
  setup.inv_freq = kernels::rope_frequencies(config.head_dim, config.rope_theta);
  switch (s.kind) {
    case RopeScaling::Kind::none: break;
    case RopeScaling::Kind::linear: kernels::stretch_linear(setup.inv_freq, s.factor); break;
    case RopeScaling::Kind::llama3:
      kernels::stretch_llama3(setup.inv_freq, s.factor, s.original_max_positions, s.low_freq_factor,
                              s.high_freq_factor);
      break;
    case RopeScaling::Kind::yarn:
      kernels::stretch_yarn(setup.inv_freq, config.rope_theta, s.factor, s.original_max_positions,
                            s.beta_fast, s.beta_slow, s.truncate);
      setup.scale = s.attention_factor;
      break;
  }
  return setup;
}

// Embed, then let every block read from and add to the stream.
void forward(const WeightSet& weights, const Batch& batch, const kernels::KvView* kv, Saved* saved,
             Workspace& ws, std::span<float> hidden) {
  const Config& config = weights.config();
  check(config, batch, hidden);
  if (saved != nullptr && kv != nullptr) {
    throw core::Error(core::Code::invalid_argument,
                      "a pass to be differentiated cannot read a cache")
        .in("forward");
  }
  const auto tokens = static_cast<std::int64_t>(batch.ids.size());
  if (tokens == 0) return;
  core::ThreadPool& pool = ws.pool();
  ws.reserve(tokens);
  if (saved != nullptr) saved->reserve(config, tokens);
  const auto rows = [&](std::span<float> buffer, std::int64_t width) {
    return buffer.first(count(tokens * width));
  };
  const std::int64_t qd = config.heads * config.head_dim, kd = config.kv_heads * config.head_dim;
  const std::span<float> x = rows(ws.x, config.hidden),
                         projected = rows(ws.projected, config.hidden);

  kernels::embedding(batch.ids, weights.embed(), x, pool);
  std::span<float> cos, sin;
  if (config.family == Family::gpt2) {
    kernels::embedding(batch.positions, weights.pos_embed(), projected, pool);
    kernels::add(x, projected, pool);
  } else {
    cos = saved != nullptr ? saved->rope_cos : rows(ws.rope_cos, config.head_dim / 2);
    sin = saved != nullptr ? saved->rope_sin : rows(ws.rope_sin, config.head_dim / 2);
    kernels::rope_table(batch.positions, ws.inv_freq(), ws.rope_scale(), cos, sin, pool);
  }
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const LayerWeights& layer = weights.layers()[count(i)];
    SavedLayer keep;
    if (saved != nullptr) keep = saved->layers[count(i)];
    const auto place = [&](std::span<float> kept, std::span<float> reused, std::int64_t width) {
      return saved != nullptr ? kept : rows(reused, width);
    };
    // Attention: each token reads the tokens before it.
    const std::span<float> normed = place(keep.attn_normed, ws.normed, config.hidden);
    const std::span<float> q = place(keep.q, ws.q, qd), k = place(keep.k, ws.k, kd),
                           v = place(keep.v, ws.v, kd);
    std::ranges::copy(saved != nullptr ? x : x.first(0), keep.input.begin());
    normalise(config, x, layer.attn_norm, layer.attn_norm_bias, normed, keep.attn_norm_mean,
              keep.attn_norm_inv, pool);
    const std::span<float> q_raw = keep.q_raw.empty() ? q : keep.q_raw,
                           k_raw = keep.k_raw.empty() ? k : keep.k_raw;
    const std::array<kernels::Projection, 3> qkv{{
        {.w = layer.q, .bias = layer.q_bias, .y = q_raw},
        {.w = layer.k, .bias = layer.k_bias, .y = k_raw},
        {.w = layer.v, .bias = layer.v_bias, .y = v},
    }};
    kernels::linear(normed, tokens, qkv, pool);
    if (config.qk_norm) {
      const std::size_t d = count(config.head_dim);
      kernels::rmsnorm(q_raw, tokens * config.heads, {layer.q_norm, d}, config.norm_eps, q,
                       keep.q_inv, pool);
      kernels::rmsnorm(k_raw, tokens * config.kv_heads, {layer.k_norm, d}, config.norm_eps, k,
                       keep.k_inv, pool);
    }
    if (!cos.empty()) {
      kernels::rope(q, tokens, config.heads, config.head_dim, cos, sin, pool);
      kernels::rope(k, tokens, config.kv_heads, config.head_dim, cos, sin, pool);
    }
    const kernels::AttentionShape shape{
        .heads = config.heads,
        .kv_heads = config.kv_heads,
        .head_dim = config.head_dim,
        .scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim))};
    const std::span<float> attended = place(keep.attn_out, ws.attn_out, qd);
    if (kv != nullptr) {
      kernels::kv_append(k, v, *kv, static_cast<int>(i), batch.row_offsets, batch.positions, pool);
      kernels::attention(q, *kv, static_cast<int>(i), batch.row_offsets, batch.positions, shape,
                         attended, {}, pool);
    } else {
      kernels::attention(q, k, v, batch.row_offsets, shape, attended, keep.lse, pool);
    }
    kernels::linear(attended, tokens, layer.o, layer.o_bias, projected, pool);
    kernels::add(x, projected, pool);
    // Feed-forward: each token thinks alone.
    std::ranges::copy(saved != nullptr ? x : x.first(0), keep.middle.begin());
    const std::span<float> read = place(keep.ffn_normed, ws.normed, config.hidden);
    normalise(config, x, layer.ffn_norm, layer.ffn_norm_bias, read, keep.ffn_norm_mean,
              keep.ffn_norm_inv, pool);
    const std::span<float> up = place(keep.up, ws.up, config.ffn);
    const std::span<float> activated = saved != nullptr ? keep.activated : up;
    const bool gated = layer.gate.data != nullptr;
    const std::span<float> gate =
        gated ? place(keep.gate, ws.gate, config.ffn) : std::span<float>();
    const std::array<kernels::Projection, 2> widened{{
        {.w = layer.up, .bias = layer.up_bias, .y = up},
        {.w = layer.gate, .bias = layer.gate_bias, .y = gate},
    }};
    kernels::linear(read, tokens, std::span(widened).first(gated ? 2 : 1), pool);
    if (gated) {
      kernels::silu_multiply(gate, up, activated, pool);
    } else {
      kernels::gelu(
          up, activated,
          config.activation == Activation::gelu ? kernels::Gelu::exact : kernels::Gelu::tanh, pool);
    }
    kernels::linear(activated, tokens, layer.down, layer.down_bias, projected, pool);
    kernels::add(x, projected, pool);
  }
  if (saved != nullptr) std::ranges::copy(x, saved->final_input.begin());
  normalise(config, x, weights.norm(), weights.norm_bias(), hidden,
            saved != nullptr ? saved->final_mean : std::span<float>(),
            saved != nullptr ? saved->final_inv : std::span<float>(), pool);
}

// Turn hidden rows into logits.
void logits(const WeightSet& weights, std::span<const float> hidden_rows, std::int64_t rows,
            Workspace& workspace, std::span<float> out) {
  kernels::linear(hidden_rows, rows, weights.head(), nullptr, out, workspace.pool());
}

}  // namespace rose::model
