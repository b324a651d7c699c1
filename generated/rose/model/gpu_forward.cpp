// Run the model forward on a GPU.

#include "rose/model/gpu_forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "rose/core/error.h"
#include "rose/kernels/gpu/elementwise.h"
#include "rose/kernels/gpu/embedding.h"
#include "rose/kernels/gpu/kv_cache.h"
#include "rose/kernels/gpu/norm.h"
#include "rose/kernels/gpu/rope.h"
#include "rose/kernels/gpu/token_linear.h"
#include "rose/model/forward.h"
#include "rose/model/gpu_adapters.h"
#include "rose/model/program.h"

namespace rose::model {

using kernels::DType;
using kernels::gpu::LinearShape;
using kernels::gpu::Matrix;
using kernels::gpu::PackedWeight;
using kernels::gpu::Stream;

// Describe the products of a model.
namespace {

std::int64_t element_bytes(DType dtype) {
  return static_cast<std::int64_t>(kernels::row_bytes(dtype, 1));
}

constexpr std::int64_t kFewRows = 2;  // up to which products fetch ahead: more would norm too often

LinearShape qkv_shape(const Config& c, DType type, std::int64_t m) {
  return {.m = m,
          .n = (c.heads + 2 * c.kv_heads) * c.head_dim,
          .k = c.hidden,
          .in = type,
          .out = type,
          .bias = c.qkv_bias};
}
LinearShape out_shape(const Config& c, DType type, std::int64_t m) {
  return {
      .m = m, .n = c.hidden, .k = c.heads * c.head_dim, .in = type, .out = type, .bias = c.o_bias};
}
LinearShape up_shape(const Config& c, DType type, std::int64_t m) {
  using Kind = kernels::gpu::Activation;
  const Kind gelu = c.activation == Activation::gelu ? Kind::gelu_exact : Kind::gelu_tanh;
  return {.m = m,
          .n = c.ffn,
          .k = c.hidden,
          .in = type,
          .out = type,
          .bias = c.mlp_bias,
          .activation = c.family == Family::gpt2 ? gelu : Kind::swiglu};
}
LinearShape down_shape(const Config& c, DType type, std::int64_t m) {
  return {.m = m, .n = c.hidden, .k = c.ffn, .in = type, .out = type, .bias = c.mlp_bias};
}
LinearShape head_shape(const Config& c, DType type, std::int64_t rows) {
  return {.m = rows, .n = c.vocab_size, .k = c.hidden, .in = type, .out = DType::f32};
}

}  // namespace

kernels::AttentionShape attention_shape(const Config& config) {
  return {.heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim))};
}

// Lay out the buffers between the steps.
namespace {

/// Hands out pieces of device memory; without any, only measures.
class Pieces {
 public:
  explicit Pieces(std::byte* memory) : memory_(memory) {}
  std::byte* take(std::int64_t bytes) {
    constexpr std::size_t line = 256;
    std::byte* const at = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += (static_cast<std::size_t>(bytes) + line - 1) / line * line;
    return at;
  }
  std::size_t used() const { return used_; }

 private:
  std::byte* memory_;
  std::size_t used_ = 0;
};

template <class To>
void lay_out(const Config& c, DType dtype, std::int64_t tokens, std::int64_t rows, Pieces& from,
             To& to) {
  const std::int64_t element = element_bytes(dtype);
  constexpr std::int64_t library = std::int64_t{32} << 20;  // what plans allow cuBLASLt
  const std::int64_t qd = c.heads * c.head_dim, kd = c.kv_heads * c.head_dim;
  to.x = from.take(tokens * c.hidden * element);
  to.y = from.take(tokens * c.hidden * element);
  to.normed = from.take(tokens * c.hidden * element);
  to.other_x = from.take(kFewRows * c.hidden * element);
  to.qkv = from.take(tokens * (qd + 2 * kd) * element);
  to.attended = from.take(tokens * qd * element);
  to.activated = from.take(tokens * c.ffn * element);
  to.last_x = from.take(rows * c.hidden * element);
  to.last_y = from.take(rows * c.hidden * element);
  const std::int64_t angles = c.family == Family::gpt2 ? 0 : c.head_dim / 2 * 4;
  to.cos = reinterpret_cast<float*>(from.take(tokens * angles));
  to.sin = reinterpret_cast<float*>(from.take(tokens * angles));
  to.inv_freq = reinterpret_cast<float*>(from.take(angles));
  const std::int64_t linear = library + tokens * 2 * c.ffn * element;
  to.linear = {from.take(linear), static_cast<std::size_t>(linear)};
}

/// The members that lay_out fills, for measuring.
struct Layout {
  std::byte *x, *y, *normed, *other_x, *qkv, *attended, *activated, *last_x, *last_y;
  float *cos, *sin, *inv_freq;
  kernels::gpu::Workspace linear;
};

}  // namespace

// Measure, make, plan.
std::size_t GpuWorkspace::bytes(const Config& config, std::int64_t tokens, std::int64_t rows,
                                DType dtype) {
  Pieces measure(nullptr);
  Layout unused{};
  lay_out(config, dtype, tokens, rows, measure, unused);
  return measure.used();
}

GpuWorkspace::GpuWorkspace(const Config& config, std::int64_t tokens, std::int64_t rows,
                           bool measured, bool laws, DType dtype)
    : plans(measured, laws), config_(config), tokens_(tokens), rows_(rows), dtype_(dtype) {
  check_gpu_model(config, dtype);
  memory_ = kernels::gpu::Buffer(bytes(config, tokens, rows, dtype));
  Pieces pieces(memory_.as<std::byte>());
  lay_out(config, dtype, tokens, rows, pieces, *this);
  const RopeSetup rope = rope_setup(config);
  rope_scale = rope.scale;
  const auto at =
      static_cast<std::size_t>(reinterpret_cast<std::byte*>(inv_freq) - memory_.as<std::byte>());
  memory_.upload(std::as_bytes(std::span(rope.inv_freq)), at);
}

void GpuWorkspace::plan(std::int64_t m) {
  for (const LinearShape& shape : {qkv_shape(config_, dtype_, m), out_shape(config_, dtype_, m),
                                   up_shape(config_, dtype_, m), down_shape(config_, dtype_, m)}) {
    plans(shape);
  }
}

void GpuWorkspace::plan_head(std::int64_t rows) {
  plans(head_shape(config_, dtype_, rows));
}

// Perform the steps of a pass on a GPU.
namespace {

class GpuOperations {
 public:
  GpuOperations(const GpuWeights& weights, const GpuBatch& batch, GpuWorkspace& ws,
                const Matrix& hidden, Stream stream)
      : w_(weights),
        c_(weights.config()),
        b_(batch),
        ws_(ws),
        hidden_(hidden),
        s_(stream),
        type_(weights.dtype()),
        few_(goes_ahead()),
        x_(ws.x),
        other_x_(ws.other_x) {}

  // Embed, and know where each token stands.
  void embed() { kernels::gpu::embedding(b_.ids, w_.embed(), x(), s_); }

  void add_positions() {
    kernels::gpu::embedding(b_.positions, w_.pos_embed(), y(), s_);
    kernels::gpu::add(x(), y(), x(), s_);
  }

  void prepare_rotation() {
    kernels::gpu::rope_table(b_.positions, b_.tokens, ws_.inv_freq, c_.head_dim / 2, ws_.rope_scale,
                             ws_.cos, ws_.sin, s_);
  }

  void enter(std::int64_t layer) {
    index_ = static_cast<int>(layer);
    layer_ = &w_.layers()[static_cast<std::size_t>(layer)];
  }

  /// Rows of a table are looked up by number: so are rows of the stream.
  void norm_final() {
    if (b_.logit_tokens == nullptr) return norm(x(), y(), true, w_.norm(), w_.norm_bias(), hidden_);
    Matrix last_x = hidden_, last_y = hidden_;
    last_x.data = ws_.last_x;
    last_y.data = ws_.last_y;
    last_x.stride = last_y.stride = 0;
    kernels::gpu::embedding(b_.logit_tokens, x(), last_x, s_);
    kernels::gpu::embedding(b_.logit_tokens, y(), last_y, s_);
    norm(last_x, last_y, true, w_.norm(), w_.norm_bias(), hidden_);
  }

  // Attention: each token reads the tokens before it.
  void norm_attention(bool add) {
    pending_ = add;
    if (!few_) norm(x(), y(), add, layer_->attn_norm, layer_->attn_norm_bias, normed());
  }

  void project_in() {
    norm_and_multiply(qkv_shape(c_, type_, b_.tokens), layer_->attn_norm, layer_->qkv,
                      layer_->packed_qkv, layer_->qkv_bias, packed(0, c_.heads + 2 * c_.kv_heads));
  }

  void place_keys() {
    const bool turns = c_.family != Family::gpt2;
    const bool together = b_.kv != nullptr && kernels::gpu::can_norm_heads(type_, c_.head_dim);
    kernels::gpu::HeadNorm heads{};
    if (c_.qk_norm && together) {
      heads = {layer_->q_norm.data, layer_->k_norm.data, DType::f32, c_.norm_eps};
    } else if (c_.qk_norm) {
      kernels::gpu::rmsnorm_heads(q(), layer_->q_norm, c_.norm_eps, q(), nullptr, s_);
      kernels::gpu::rmsnorm_heads(k(), layer_->k_norm, c_.norm_eps, k(), nullptr, s_);
    }
    if (b_.kv != nullptr) {
      const kernels::gpu::Rotation rotation{turns ? ws_.cos : nullptr, turns ? ws_.sin : nullptr};
      kernels::gpu::kv_append(q(), k(), v(), *b_.kv, index_, b_.places, rotation, s_, b_.fault,
                              heads);
    } else if (turns) {
      constexpr auto half = kernels::gpu::RopePairing::half;
      kernels::gpu::rope(q(), c_.head_dim, ws_.cos, ws_.sin, half, false, s_);
      kernels::gpu::rope(k(), c_.head_dim, ws_.cos, ws_.sin, half, false, s_);
    }
  }

  void attend() {
    const Matrix out = rows(ws_.attended, c_.heads * c_.head_dim);
    if (b_.kv != nullptr) {
      kernels::gpu::attention(*b_.plan, q(), *b_.kv, index_, out, nullptr, b_.attention, s_,
                              b_.fault);
    } else {
      kernels::gpu::attention(*b_.plan, q(), k(), v(), out, nullptr, b_.attention, s_);
    }
  }

  void project_out() {
    multiply(out_shape(c_, type_, b_.tokens), rows(ws_.attended, c_.heads * c_.head_dim), layer_->o,
             layer_->packed_o, layer_->o_bias, y());
  }

  // Feed-forward: each token thinks alone.
  void norm_feed_forward() {
    pending_ = true;
    if (!few_) norm(x(), y(), true, layer_->ffn_norm, layer_->ffn_norm_bias, normed());
  }

  void widen() {
    norm_and_multiply(up_shape(c_, type_, b_.tokens), layer_->ffn_norm, layer_->up,
                      layer_->packed_up, layer_->up_bias, rows(ws_.activated, c_.ffn));
  }

  void narrow() {
    multiply(down_shape(c_, type_, b_.tokens), rows(ws_.activated, c_.ffn), layer_->down,
             layer_->packed_down, layer_->down_bias, y());
  }

 protected:  // a later chapter adds to the products
  // Name the buffers, norm, multiply.
  Matrix rows(std::byte* data, std::int64_t cols) const {
    return {.data = data, .dtype = type_, .rows = b_.tokens, .cols = cols};
  }
  Matrix x() const { return rows(x_, c_.hidden); }
  Matrix y() const { return rows(ws_.y, c_.hidden); }
  Matrix normed() const { return rows(ws_.normed, c_.hidden); }
  /// Columns of the packed queries, keys and values.
  Matrix packed(std::int64_t first, std::int64_t heads) const {
    const std::int64_t d = c_.head_dim;
    Matrix m = rows(ws_.qkv + first * d * element_bytes(type_), heads * d);
    m.stride = (c_.heads + 2 * c_.kv_heads) * d;
    return m;
  }
  Matrix q() const { return packed(0, c_.heads); }
  Matrix k() const { return packed(c_.heads, c_.kv_heads); }
  Matrix v() const { return packed(c_.heads + c_.kv_heads, c_.kv_heads); }

  /// With `add`, stream += change first, in the same kernel.
  void norm(const Matrix& stream, const Matrix& change, bool add, const Matrix& weight,
            const Matrix& bias, const Matrix& to) const {
    if (c_.norm == NormKind::rmsnorm) {
      if (add) {
        kernels::gpu::add_rmsnorm(stream, change, weight, c_.norm_eps, stream, to, nullptr, s_);
      } else {
        kernels::gpu::rmsnorm(stream, weight, c_.norm_eps, to, nullptr, s_);
      }
    } else if (add) {
      kernels::gpu::add_layernorm(stream, change, weight, bias, c_.norm_eps, stream, to, nullptr,
                                  nullptr, s_);
    } else {
      kernels::gpu::layernorm(stream, weight, bias, c_.norm_eps, to, nullptr, nullptr, s_);
    }
  }

  // Norm and multiply together, for few tokens.
  bool goes_ahead() const {
    using kernels::gpu::token_linear_fits;
    return c_.norm == NormKind::rmsnorm && b_.tokens <= kFewRows && b_.adapters == nullptr &&
           !w_.packed() && token_linear_fits(qkv_shape(c_, type_, b_.tokens)) &&
           token_linear_fits(out_shape(c_, type_, b_.tokens)) &&
           token_linear_fits(up_shape(c_, type_, b_.tokens)) &&
           token_linear_fits(down_shape(c_, type_, b_.tokens));
  }

  void norm_and_multiply(const LinearShape& shape, const Matrix& norm_weight, const Matrix& weight,
                         const PackedWeight& few_bits, const void* bias, const Matrix& to) {
    if (!few_) return multiply(shape, normed(), weight, few_bits, bias, to);
    kernels::gpu::TokenLinear a{
        .x = x(), .norm = norm_weight, .eps = c_.norm_eps, .w = weight, .bias = bias, .y = to};
    if (pending_) {
      a.add = y();
      a.sum = rows(other_x_, c_.hidden);
      std::swap(x_, other_x_);
    }
    kernels::gpu::token_linear(shape, a, s_);
  }

  void multiply_packed(const LinearShape& shape, const Matrix& from, const PackedWeight& weight,
                       const void* bias, const Matrix& to) const {
    using Kind = kernels::gpu::Activation;
    if (shape.activation == Kind::none) {
      return kernels::gpu::linear_packed(from, weight, bias, to, s_);
    }
    auto* const scratch = static_cast<std::byte*>(ws_.linear.data);
    const Matrix wide = rows(scratch, weight.rows);
    kernels::gpu::linear_packed(from, weight, bias, wide, s_);
    if (shape.activation != Kind::swiglu) {
      const bool exact = shape.activation == Kind::gelu_exact;
      return kernels::gpu::gelu(wide, to, exact ? kernels::Gelu::exact : kernels::Gelu::tanh, s_);
    }
    Matrix gate = wide, up = wide;
    gate.cols = up.cols = to.cols;
    gate.stride = up.stride = weight.rows;
    up.data = scratch + to.cols * element_bytes(type_);
    kernels::gpu::silu_multiply(gate, up, to, s_);
  }

  /// By the packed weight where there is one.
  void multiply(const LinearShape& shape, const Matrix& from, const Matrix& weight,
                const PackedWeight& few_bits, const void* bias, const Matrix& to) const {
    if (few_bits.rows > 0) return multiply_packed(shape, from, few_bits, bias, to);
    if (few_) {
      return kernels::gpu::token_linear(shape, {.x = from, .w = weight, .bias = bias, .y = to}, s_);
    }
    kernels::gpu::linear(ws_.plans(shape), {.x = from, .w = weight, .bias = bias, .y = to},
                         ws_.linear, s_);
  }

  const GpuWeights& w_;
  const Config& c_;
  const GpuBatch& b_;
  GpuWorkspace& ws_;
  const Matrix& hidden_;
  Stream s_;
  DType type_;
  bool few_;
  std::byte *x_, *other_x_;  // the stream, and where it goes next
  bool pending_ = false;     // y is still to be added
  const GpuLayer* layer_ = nullptr;
  int index_ = 0;
};

}  // namespace

// Perform the steps on a GPU, and add each sequence's own change.

namespace {

class AdaptedGpuOperations : public GpuOperations {
 public:
  using GpuOperations::GpuOperations;

  void project_in() {
    GpuOperations::project_in();
    adapt(Linear::q, normed(), q());
    adapt(Linear::k, normed(), k());
    adapt(Linear::v, normed(), v());
  }
  void project_out() {
    GpuOperations::project_out();
    adapt(Linear::o, rows(ws_.attended, c_.heads * c_.head_dim), y());
  }
  void widen() {
    const bool gated = c_.family != Family::gpt2;
    const std::int64_t width = gated ? 2 * c_.ffn : c_.ffn;
    LinearShape shape = up_shape(c_, type_, b_.tokens);
    shape.n = width;
    shape.activation = kernels::gpu::Activation::none;
    const Matrix all = rows(b_.adapters->widened(), width);
    multiply(shape, normed(), layer_->up, layer_->packed_up, layer_->up_bias, all);
    Matrix gate = all, up = all;
    gate.cols = up.cols = c_.ffn;
    gate.stride = up.stride = width;
    if (gated) up.data = b_.adapters->widened() + c_.ffn * element_bytes(type_);
    adapt(Linear::up, normed(), up);
    const Matrix out = rows(ws_.activated, c_.ffn);
    if (gated) {
      adapt(Linear::gate, normed(), gate);
      kernels::gpu::silu_multiply(gate, up, out, s_);
    } else {
      const bool exact = c_.activation == Activation::gelu;
      kernels::gpu::gelu(up, out, exact ? kernels::Gelu::exact : kernels::Gelu::tanh, s_);
    }
  }
  void narrow() {
    GpuOperations::narrow();
    adapt(Linear::down, rows(ws_.activated, c_.ffn), y());
  }

 private:
  void adapt(Linear which, const Matrix& from, const Matrix& to) const {
    b_.adapters->add(index_, which, from, to, b_.adapter_offsets, s_);
  }
};

}  // namespace

// Run the program.
void forward(const GpuWeights& weights, const GpuBatch& batch, GpuWorkspace& workspace,
             const Matrix& hidden, Stream stream) {
  const Config& config = weights.config();
  const auto fail = [](const char* where, std::string message) {
    throw core::Error(core::Code::invalid_argument, std::move(message)).in(where);
  };
  if (batch.tokens < 0 || batch.tokens > workspace.tokens()) {
    fail("tokens",
         fmt::format("{} tokens, where there is room for {}", batch.tokens, workspace.tokens()));
  }
  if (hidden.cols != config.hidden || hidden.dtype != weights.dtype() ||
      (batch.logit_tokens == nullptr ? hidden.rows != batch.tokens
                                     : hidden.rows > workspace.rows())) {
    fail("hidden",
         fmt::format("{} rows of {}, where rows of {} are needed, one for each token that "
                     "is asked for, at most {}",
                     hidden.rows, hidden.cols, config.hidden, workspace.rows()));
  }
  if (workspace.dtype() != weights.dtype()) fail("workspace", "it is for another type");
  if (batch.plan == nullptr || batch.plan->tokens != batch.tokens) {
    fail("plan", "the attention plan is of another batch");
  }
  if (batch.kv != nullptr && batch.places == nullptr) fail("places", "a cache needs them");
  if (batch.tokens == 0) return;
  if (batch.adapters != nullptr) {
    run_forward(config, AdaptedGpuOperations(weights, batch, workspace, hidden, stream));
  } else {
    run_forward(config, GpuOperations(weights, batch, workspace, hidden, stream));
  }
}

void logits(const GpuWeights& weights, const Matrix& hidden_rows, GpuWorkspace& workspace,
            const Matrix& out, Stream stream) {
  const LinearShape shape = head_shape(weights.config(), weights.dtype(), hidden_rows.rows);
  kernels::gpu::linear(workspace.plans(shape), {.x = hidden_rows, .w = weights.head(), .y = out},
                       workspace.linear, stream);
}

}  // namespace rose::model
