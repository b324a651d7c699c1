// Run the model forward.

#include "rose/model/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "rose/core/error.h"
#include "rose/kernels/activation.h"
#include "rose/kernels/attention.h"
#include "rose/kernels/dropout.h"
#include "rose/kernels/embedding.h"
#include "rose/kernels/linear.h"
#include "rose/kernels/norm.h"
#include "rose/kernels/rope.h"
#include "rose/model/adapter.h"
#include "rose/model/adapter_dropout.h"
#include "rose/model/program.h"

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

// Perform the steps of a pass on a CPU.
class CpuOperations {
 public:
  CpuOperations(const WeightSet& weights, const Batch& batch, const kernels::KvView* kv,
                Saved* saved, Workspace& ws, std::span<float> hidden)
      : weights_(weights),
        config_(weights.config()),
        batch_(batch),
        kv_(kv),
        saved_(saved),
        ws_(ws),
        pool_(ws.pool()),
        tokens_(static_cast<std::int64_t>(batch.ids.size())),
        x_(rows(ws.x, config_.hidden)),
        y_(rows(ws.projected, config_.hidden)),
        hidden_(hidden) {}

  // Embed, and know where each token stands.
  void embed() { kernels::embedding(batch_.ids, weights_.embed(), x_, pool_); }

  void add_positions() {
    kernels::embedding(batch_.positions, weights_.pos_embed(), y_, pool_);
    kernels::add(x_, y_, pool_);
  }

  void prepare_rotation() {
    cos_ = saved_ != nullptr ? saved_->rope_cos : rows(ws_.rope_cos, config_.head_dim / 2);
    sin_ = saved_ != nullptr ? saved_->rope_sin : rows(ws_.rope_sin, config_.head_dim / 2);
    kernels::rope_table(batch_.positions, ws_.inv_freq(), ws_.rope_scale(), cos_, sin_, pool_);
  }

  void enter(std::int64_t layer) {
    layer_index_ = layer;
    layer_ = &weights_.layers()[count(layer)];
    if (saved_ != nullptr) keep_ = saved_->layers[count(layer)];
  }

  void norm_final() {
    kernels::add(x_, y_, pool_);
    if (saved_ != nullptr) std::ranges::copy(x_, saved_->final_input.begin());
    normalise(config_, x_, weights_.norm(), weights_.norm_bias(), hidden_,
              saved_ != nullptr ? saved_->final_mean : std::span<float>(),
              saved_ != nullptr ? saved_->final_inv : std::span<float>(), pool_);
  }

  // Attention: each token reads the tokens before it.
  void norm_attention(bool add) {
    if (add) kernels::add(x_, y_, pool_);
    keep_stream(keep_.input);
    normed_ = place(keep_.attn_normed, ws_.normed, config_.hidden);
    normalise(config_, x_, layer_->attn_norm, layer_->attn_norm_bias, normed_, keep_.attn_norm_mean,
              keep_.attn_norm_inv, pool_);
  }

  void project_in() {
    q_ = place(keep_.q, ws_.q, config_.heads * config_.head_dim);
    k_ = place(keep_.k, ws_.k, config_.kv_heads * config_.head_dim);
    v_ = place(keep_.v, ws_.v, config_.kv_heads * config_.head_dim);
    const std::array<kernels::Projection, 3> qkv{{
        {.w = layer_->q, .bias = layer_->q_bias, .y = raw(keep_.q_raw, q_)},
        {.w = layer_->k, .bias = layer_->k_bias, .y = raw(keep_.k_raw, k_)},
        {.w = layer_->v, .bias = layer_->v_bias, .y = v_},
    }};
    kernels::linear(normed_, tokens_, qkv, pool_);
  }

  void place_keys() {
    const std::int64_t h = config_.heads, g = config_.kv_heads, d = config_.head_dim;
    if (config_.qk_norm) {
      kernels::rmsnorm(raw(keep_.q_raw, q_), tokens_ * h, {layer_->q_norm, count(d)},
                       config_.norm_eps, q_, keep_.q_inv, pool_);
      kernels::rmsnorm(raw(keep_.k_raw, k_), tokens_ * g, {layer_->k_norm, count(d)},
                       config_.norm_eps, k_, keep_.k_inv, pool_);
    }
    if (!cos_.empty()) {
      kernels::rope(q_, tokens_, h, d, cos_, sin_, pool_);
      kernels::rope(k_, tokens_, g, d, cos_, sin_, pool_);
    }
    if (kv_ != nullptr) {
      kernels::kv_append(k_, v_, *kv_, static_cast<int>(layer_index_), batch_.row_offsets,
                         batch_.positions, pool_);
      if (ws_.on_keys) ws_.on_keys(static_cast<int>(layer_index_));
    }
  }

  static std::span<float> raw(std::span<float> kept, std::span<float> reused) {
    return kept.empty() ? reused : kept;
  }

  void attend() {
    const kernels::AttentionShape shape{
        .heads = config_.heads,
        .kv_heads = config_.kv_heads,
        .head_dim = config_.head_dim,
        .scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim))};
    attended_ = place(keep_.attn_out, ws_.attn_out, config_.heads * config_.head_dim);
    if (kv_ != nullptr) {
      kernels::attention(q_, *kv_, static_cast<int>(layer_index_), batch_.row_offsets,
                         batch_.positions, shape, attended_, {}, pool_);
    } else {
      kernels::attention(q_, k_, v_, batch_.row_offsets, shape, attended_, keep_.lse, pool_);
    }
  }

  void project_out() { kernels::linear(attended_, tokens_, layer_->o, layer_->o_bias, y_, pool_); }

  // Feed-forward: each token thinks alone.
  void norm_feed_forward() {
    kernels::add(x_, y_, pool_);
    keep_stream(keep_.middle);
    normed_ = place(keep_.ffn_normed, ws_.normed, config_.hidden);
    normalise(config_, x_, layer_->ffn_norm, layer_->ffn_norm_bias, normed_, keep_.ffn_norm_mean,
              keep_.ffn_norm_inv, pool_);
  }

  void project_up() {
    up_ = place(keep_.up, ws_.up, config_.ffn);
    activated_ = saved_ != nullptr ? keep_.activated : up_;
    const bool gated = layer_->gate.data != nullptr;
    gate_ = gated ? place(keep_.gate, ws_.gate, config_.ffn) : std::span<float>();
    const std::array<kernels::Projection, 2> widened{{
        {.w = layer_->up, .bias = layer_->up_bias, .y = up_},
        {.w = layer_->gate, .bias = layer_->gate_bias, .y = gate_},
    }};
    kernels::linear(normed_, tokens_, std::span(widened).first(gated ? 2 : 1), pool_);
  }

  void activate() {
    if (!gate_.empty()) {
      kernels::silu_multiply(gate_, up_, activated_, pool_);
    } else {
      const auto kind =
          config_.activation == Activation::gelu ? kernels::Gelu::exact : kernels::Gelu::tanh;
      kernels::gelu(up_, activated_, kind, pool_);
    }
  }

  void widen() {
    project_up();
    activate();
  }

  void narrow() {
    kernels::linear(activated_, tokens_, layer_->down, layer_->down_bias, y_, pool_);
  }

 protected:  // a later chapter adds to the products
  // Keep, or reuse.
  std::span<float> rows(std::span<float> buffer, std::int64_t width) const {
    return buffer.first(count(tokens_ * width));
  }
  std::span<float> place(std::span<float> kept, std::span<float> reused, std::int64_t width) const {
    return saved_ != nullptr ? kept : rows(reused, width);
  }
  /// The stream is about to change: what backward needs of it is copied.
  void keep_stream(std::span<float> to) const {
    std::ranges::copy(saved_ != nullptr ? x_ : x_.first(0), to.begin());
  }

  const WeightSet& weights_;
  const Config& config_;
  const Batch& batch_;
  const kernels::KvView* kv_;
  Saved* saved_;
  Workspace& ws_;
  core::ThreadPool& pool_;
  std::int64_t tokens_, layer_index_ = 0;
  std::span<float> x_, y_, hidden_, cos_, sin_, q_, k_, v_, normed_, attended_;
  std::span<float> gate_, up_, activated_;
  const LayerWeights* layer_ = nullptr;
  SavedLayer keep_;
};

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

// Embed, then let every block read from and add to the stream, adapted or not.
namespace {

// Perform the steps, and add each sequence's own change.
class AdaptedCpuOperations : public CpuOperations {
 public:
  using CpuOperations::CpuOperations;

  void project_in() {
    CpuOperations::project_in();
    adapt(Linear::q, normed_, raw(keep_.q_raw, q_));
    adapt(Linear::k, normed_, raw(keep_.k_raw, k_));
    adapt(Linear::v, normed_, v_);
  }
  void project_out() {
    CpuOperations::project_out();
    adapt(Linear::o, attended_, y_);
  }
  void widen() {
    project_up();
    adapt(Linear::up, normed_, up_);
    if (!gate_.empty()) adapt(Linear::gate, normed_, gate_);
    activate();
  }
  void narrow() {
    CpuOperations::narrow();
    adapt(Linear::down, activated_, y_);
  }

 private:
  // Multiply neighbours with one adapter together.
  void adapt(Linear which, std::span<const float> x, std::span<float> y) {
    const LinearSize size = linear_size(config_, which);
    for (std::size_t s = 0; s < batch_.adapters.size();) {
      const Adapter* const adapter = batch_.adapters[s];
      const std::int64_t begin = batch_.row_offsets[s];
      while (s < batch_.adapters.size() && batch_.adapters[s] == adapter) ++s;
      const std::int64_t n = batch_.row_offsets[s] - begin;
      if (adapter == nullptr || n == 0) continue;
      const LowRank& pair = adapter->at(layer_index_, which);
      if (pair.a.empty()) continue;
      const std::int64_t rank = adapter->rank;
      const std::size_t needed = count(n * (rank + size.out));
      if (ws_.adapted.size() < needed) ws_.adapted.resize(needed);
      const std::span<float> low = std::span(ws_.adapted).first(count(n * rank)),
                             change = std::span(ws_.adapted)
                                          .subspan(count(n * rank), count(n * size.out));
      const auto matrix = [](const std::vector<float>& values, std::int64_t rows,
                             std::int64_t cols) {
        return kernels::MatrixView{values.data(), kernels::DType::f32, rows, cols};
      };
      const std::span<const float> from =
          thinned(which, x.subspan(count(begin * size.in), count(n * size.in)), begin * size.in);
      kernels::linear(from, n, matrix(pair.a, rank, size.in), nullptr, low, pool_);
      kernels::linear(low, n, matrix(pair.b, size.out, rank), nullptr, change, pool_);
      const std::span<float> to = y.subspan(count(begin * size.out), count(n * size.out));
      for (std::size_t i = 0; i < to.size(); ++i) to[i] += adapter->scale * change[i];
    }
  }

  std::span<const float> thinned(Linear which, std::span<const float> x, std::int64_t first) {
    if (batch_.adapter_dropout == nullptr) return x;
    ws_.thinned.resize(x.size());
    const auto layer = static_cast<std::size_t>(layer_index_);
    kernels::dropout(x, dropout_of(*batch_.adapter_dropout, layer, which),
                     static_cast<std::uint64_t>(first), ws_.thinned, pool_);
    return ws_.thinned;
  }
};

}  // namespace

void forward(const WeightSet& weights, const Batch& batch, const kernels::KvView* kv, Saved* saved,
             Workspace& ws, std::span<float> hidden) {
  const Config& config = weights.config();
  check(config, batch, hidden);
  const auto fail = [](const char* message) {
    throw core::Error(core::Code::invalid_argument, message).in("forward");
  };
  if (!weights.plain()) fail("the weights were packed for a GPU only");
  if (saved != nullptr && kv != nullptr) fail("a pass to be differentiated cannot read a cache");
  if (!batch.adapters.empty() && batch.adapters.size() + 1 != batch.row_offsets.size())
    fail("there must be one adapter, or none, for each sequence");
  const auto tokens = static_cast<std::int64_t>(batch.ids.size());
  if (tokens == 0) return;
  ws.reserve(tokens);
  if (saved != nullptr) saved->reserve(config, tokens);
  const bool adapted = std::ranges::any_of(batch.adapters, [](auto* a) { return a != nullptr; });
  if (adapted)
    run_forward(config, AdaptedCpuOperations(weights, batch, kv, saved, ws, hidden));
  else
    run_forward(config, CpuOperations(weights, batch, kv, saved, ws, hidden));
}

// Turn hidden rows into logits.
void logits(const WeightSet& weights, std::span<const float> hidden_rows, std::int64_t rows,
            Workspace& workspace, std::span<float> out) {
  kernels::linear(hidden_rows, rows, weights.head(), nullptr, out, workspace.pool());
}

}  // namespace rose::model
