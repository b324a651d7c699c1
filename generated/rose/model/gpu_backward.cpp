// Run a model forward and back on a GPU.

#include "rose/model/gpu_backward.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "rose/core/error.h"
#include "rose/kernels/gpu/cross_entropy.h"
#include "rose/kernels/gpu/elementwise.h"
#include "rose/kernels/gpu/embedding.h"
#include "rose/kernels/gpu/norm.h"
#include "rose/kernels/gpu/rope.h"
#include "rose/kernels/gpu/turn_heads.h"
#include "rose/model/gpu_forward.h"
#include "rose/model/gpu_weights.h"
#include "rose/model/program.h"

namespace rose::model {

using kernels::DType;
using kernels::gpu::BackwardProduct;
using kernels::gpu::LinearShape;
using kernels::gpu::Matrix;
using kernels::gpu::Stream;

// Perform the steps of a pass, and keep what the way back needs.
class TrainingOperations {
 public:
  TrainingOperations(GpuTraining& training)
      : t_(training),
        c_(training.parameters_.config()),
        w_(training.parameters_.weights()),
        d_(training.parameters_.slopes()),
        saved_(training.saved_),
        dtype_(training.parameters_.dtype()),
        s_(training.stream()) {}

  // Forward.
  void embed() { kernels::gpu::embedding(saved_.ids, w_.embed, now(saved_.layers[0].input), s_); }

  void add_positions() {
    const Matrix x = now(saved_.layers[0].input);
    kernels::gpu::embedding(saved_.positions, w_.pos_embed, change(), s_);
    kernels::gpu::add(x, change(), x, s_);
  }

  void prepare_rotation() {
    kernels::gpu::rope_table(saved_.positions, t_.tokens_, saved_.inv_freq, c_.head_dim / 2,
                             t_.rope_scale_, saved_.cos, saved_.sin, s_);
  }

  void enter(std::int64_t layer) {
    index_ = static_cast<std::size_t>(layer);
    layer_ = &w_.layers[index_];
    slope_ = &d_.layers[index_];
    keep_ = &saved_.layers[index_];
    if (layer == 0) t_.mark("embedding");
  }

  void norm_attention(bool add) {
    const Matrix before = add ? now(saved_.layers[index_ - 1].middle) : Matrix{};
    norm(before, keep_->input, layer_->attn_norm, layer_->attn_norm_bias, keep_->normed,
         keep_->mean, keep_->inv);
  }

  void project_in() {
    multiply(BlockProduct::qkv, keep_->normed, layer_->qkv, layer_->qkv_bias, now(keep_->qkv));
    t_.mark("product");
  }

  void place_keys() {
    constexpr auto half = kernels::gpu::RopePairing::half;
    if (turns_at_once()) {
      kernels::gpu::turn_heads(head_turn(), raw(0, c_.heads + c_.kv_heads), now(keep_->turned),
                               keep_->q_inv, keep_->k_inv, s_);
      return t_.mark("turn");
    }
    if (c_.qk_norm) {
      kernels::gpu::rmsnorm_heads(raw(0, c_.heads), layer_->q_norm, c_.norm_eps, q(), keep_->q_inv,
                                  s_);
      kernels::gpu::rmsnorm_heads(raw(c_.heads, c_.kv_heads), layer_->k_norm, c_.norm_eps, k(),
                                  keep_->k_inv, s_);
    }
    if (c_.family != Family::gpt2) {
      const Matrix both =
          heads_of(c_.qk_norm ? keep_->turned : keep_->qkv, 0, c_.heads + c_.kv_heads);
      kernels::gpu::rope(both, c_.head_dim, saved_.cos, saved_.sin, half, false, s_);
    }
    t_.mark("turn");
  }

  void attend() {
    kernels::gpu::attention(t_.plan_, q(), k(), v(), now(keep_->attended), keep_->lse,
                            t_.attention_.workspace(), s_);
    t_.mark("attention");
  }

  void project_out() {
    multiply(BlockProduct::o, keep_->attended, layer_->o, layer_->o_bias, change());
    t_.mark("product");
  }

  void norm_feed_forward() {
    norm(now(keep_->input), keep_->middle, layer_->ffn_norm, layer_->ffn_norm_bias,
         keep_->ffn_normed, keep_->ffn_mean, keep_->ffn_inv);
  }

  void widen() {
    multiply(BlockProduct::up, keep_->ffn_normed, layer_->up, layer_->up_bias, now(keep_->up));
    t_.mark("product");
    activate();
  }

  void narrow() {
    multiply(BlockProduct::down, keep_->activated, layer_->down, layer_->down_bias, change());
    t_.mark("product");
  }

  void norm_final() {
    norm(now(saved_.layers.back().middle), saved_.final_input, w_.norm, w_.norm_bias, saved_.hidden,
         saved_.final_mean, saved_.final_inv);
  }

  // Back.

  /// Computes again, in the order of the pass, what was not kept.
  void recompute(std::int64_t layer) {
    enter(layer);
    const Recompute level = saved_.shape().recompute;
    if (level == Recompute::nothing) return;
    norm_attention(false);
    if (level == Recompute::selective) return;
    project_in();
    place_keys();
    attend();
    project_out();
    norm_feed_forward();
    widen();
  }

  void feed_forward_back() {
    const Matrix dx = now(saved_.d_stream), act = now(keep_->activated), up = now(keep_->up);
    if (saved_.shape().recompute == Recompute::selective) {
      norm({}, keep_->middle, layer_->ffn_norm, layer_->ffn_norm_bias, keep_->ffn_normed,
           keep_->ffn_mean, keep_->ffn_inv);
      activate();
    }
    multiply_back(BlockProduct::down, dx, act, layer_->down, slope_->down, slope_->down_bias, act);
    Matrix up_bias = slope_->up_bias;
    if (c_.family == Family::gpt2 && up_bias.data != nullptr) {
      kernels::gpu::gelu_bias_backward(up, act, up, gelu(), floats(up_bias),
                                       t_.scratch_.workspace(), s_);
      up_bias = {};  // done
    } else if (c_.family == Family::gpt2) {
      kernels::gpu::gelu_backward(up, act, up, gelu(), s_);
    } else {
      const Matrix gate = half(keep_->up, 0), rest = half(keep_->up, 1);
      kernels::gpu::silu_multiply_backward(gate, rest, act, gate, rest, s_);
    }
    t_.mark("activation back");
    const Matrix normed = now(keep_->ffn_normed);
    multiply_back(BlockProduct::up, up, normed, layer_->up, slope_->up, up_bias, normed);
    norm_back(keep_->middle, layer_->ffn_norm, keep_->ffn_mean, keep_->ffn_inv, normed, true,
              slope_->ffn_norm, slope_->ffn_norm_bias);
  }

  void attention_back() {
    const Matrix dx = now(saved_.d_stream), d = now(saved_.d_qkv);
    if (c_.qk_norm && saved_.shape().recompute == Recompute::selective) place_keys();
    multiply_back(BlockProduct::o, dx, now(keep_->attended), layer_->o, slope_->o, slope_->o_bias,
                  d_attended());
    const Matrix dq = heads_of(d, 0, c_.heads), dk = heads_of(d, c_.heads, c_.kv_heads),
                 dv = heads_of(d, c_.heads + c_.kv_heads, c_.kv_heads);
    kernels::gpu::attention_backward(t_.back_plan_,
                                     {q(), k(), v(), now(keep_->attended), keep_->lse},
                                     d_attended(), dq, dk, dv, t_.attention_back_.workspace(), s_);
    t_.mark("attention back");
    turn_back(dq, dk, heads_of(d, 0, c_.heads + c_.kv_heads));
    t_.mark("turn back");
    const Matrix normed = now(keep_->normed);
    multiply_back(BlockProduct::qkv, d, normed, layer_->qkv, slope_->qkv, slope_->qkv_bias, normed);
    norm_back(keep_->input, layer_->attn_norm, keep_->mean, keep_->inv, normed, true,
              slope_->attn_norm, slope_->attn_norm_bias);
  }

  void final_back() {
    norm_back(saved_.final_input, w_.norm, saved_.final_mean, saved_.final_inv, now(saved_.hidden),
              false, d_.norm, d_.norm_bias);
  }

 private:
  // Name the buffers, norm, multiply.

  /// The rows that this batch has.
  Matrix now(Matrix m) const {
    m.rows = t_.tokens_;
    return m;
  }
  /// What half a block computed and has not added yet; on the way back, the gradient of the attended values.
  Matrix change() const { return {saved_.change.data, dtype_, t_.tokens_, c_.hidden}; }
  Matrix d_attended() const {
    return {saved_.change.data, dtype_, t_.tokens_, c_.heads * c_.head_dim};
  }
  /// Some heads of a packed matrix.
  Matrix heads_of(const Matrix& packed, std::int64_t first, std::int64_t heads) const {
    Matrix m = now(packed);
    m.data = static_cast<std::byte*>(m.data) +
             static_cast<std::size_t>(first) * kernels::row_bytes(dtype_, c_.head_dim);
    m.cols = heads * c_.head_dim;
    m.stride = packed.cols;
    return m;
  }
  Matrix raw(std::int64_t first, std::int64_t heads) const {
    return heads_of(keep_->qkv, first, heads);
  }
  Matrix q() const { return heads_of(c_.qk_norm ? keep_->turned : keep_->qkv, 0, c_.heads); }
  Matrix k() const {
    return heads_of(c_.qk_norm ? keep_->turned : keep_->qkv, c_.heads, c_.kv_heads);
  }
  Matrix v() const { return raw(c_.heads + c_.kv_heads, c_.kv_heads); }
  /// The left or the right half of the columns.
  Matrix half(const Matrix& wide, std::int64_t which) const {
    Matrix m = now(wide);
    m.data = static_cast<std::byte*>(m.data) +
             static_cast<std::size_t>(which) * kernels::row_bytes(dtype_, c_.ffn);
    m.cols = c_.ffn;
    m.stride = wide.cols;
    return m;
  }

  /// to = norm(stream), where stream becomes before + change first unless there is nothing before.
  void norm(const Matrix& before, const Matrix& stream, const Matrix& weight, const Matrix& bias,
            const Matrix& to, float* mean, float* inv) const {
    const Matrix x = now(stream), y = now(to);
    const bool add = before.data != nullptr;
    if (c_.norm == NormKind::rmsnorm) {
      if (add) {
        kernels::gpu::add_rmsnorm(before, change(), weight, c_.norm_eps, x, y, inv, s_);
      } else {
        kernels::gpu::rmsnorm(x, weight, c_.norm_eps, y, inv, s_);
      }
    } else if (add) {
      kernels::gpu::add_layernorm(before, change(), weight, bias, c_.norm_eps, x, y, mean, inv, s_);
    } else {
      kernels::gpu::layernorm(x, weight, bias, c_.norm_eps, y, mean, inv, s_);
    }
    t_.mark("norm");
  }

  void multiply(BlockProduct which, const Matrix& from, const Matrix& weight, const Matrix& bias,
                const Matrix& to) const {
    const LinearShape shape{.m = t_.tokens_,
                            .n = weight.rows,
                            .k = weight.cols,
                            .in = dtype_,
                            .out = dtype_,
                            .bias = bias.data != nullptr};
    kernels::gpu::linear(t_.plans_(shape),
                         {.x = now(from), .w = weight, .bias = bias.data, .y = to},
                         t_.scratch_.workspace(), s_);
    if (t_.beside_ != nullptr) t_.beside_->forward(index_, which, now(from), to, s_);
  }

  kernels::Gelu gelu() const {
    return c_.activation == Activation::gelu ? kernels::Gelu::exact : kernels::Gelu::tanh;
  }
  void activate() const {
    if (c_.family == Family::gpt2) {
      kernels::gpu::gelu(now(keep_->up), now(keep_->activated), gelu(), s_);
    } else {
      kernels::gpu::silu_multiply(half(keep_->up, 0), half(keep_->up, 1), now(keep_->activated),
                                  s_);
    }
    t_.mark("activation");
  }

  static float* floats(const Matrix& m) { return static_cast<float*>(m.data); }

  bool turns_at_once() const { return c_.qk_norm && kernels::gpu::can_turn_heads(c_.head_dim); }
  kernels::gpu::HeadTurn head_turn() const {
    return {.heads = c_.heads,
            .kv_heads = c_.kv_heads,
            .head_dim = c_.head_dim,
            .q_norm = layer_->q_norm,
            .k_norm = layer_->k_norm,
            .eps = c_.norm_eps,
            .cos = saved_.cos,
            .sin = saved_.sin};
  }
  /// Through rotation and QK-norm, in place; `both` are dq and dk side by side.
  void turn_back(const Matrix& dq, const Matrix& dk, const Matrix& both) const {
    constexpr auto pairs = kernels::gpu::RopePairing::half;
    const kernels::gpu::Workspace room = t_.scratch_.workspace();
    if (turns_at_once()) {
      return kernels::gpu::turn_heads_backward(
          head_turn(), raw(0, c_.heads + c_.kv_heads), keep_->q_inv, keep_->k_inv, both,
          floats(slope_->q_norm), floats(slope_->k_norm), room, s_);
    }
    if (c_.family != Family::gpt2) {
      kernels::gpu::rope(both, c_.head_dim, saved_.cos, saved_.sin, pairs, true, s_);
    }
    if (!c_.qk_norm) return;
    kernels::gpu::rmsnorm_heads_backward(raw(0, c_.heads), layer_->q_norm, keep_->q_inv, dq, dq,
                                         floats(slope_->q_norm), room, s_);
    kernels::gpu::rmsnorm_heads_backward(raw(c_.heads, c_.kv_heads), layer_->k_norm, keep_->k_inv,
                                         dk, dk, floats(slope_->k_norm), room, s_);
  }
  /// dw += dy^T x, db += the columns of dy, dx = dy w; dx may be x.
  void multiply_back(BlockProduct which, const Matrix& dy, const Matrix& x, const Matrix& w,
                     const Matrix& dw, const Matrix& db, const Matrix& dx) const {
    kernels::gpu::BackwardShape shape{
        .product = BackwardProduct::weight, .m = dy.rows, .n = w.rows, .k = w.cols, .in = dtype_};
    if (t_.beside_ != nullptr) t_.beside_->before_back(index_, which, dy, x, s_);
    if (dw.data != nullptr) {
      linear_backward_weight(t_.back_plans_(shape), dy, x, dw, t_.scratch_.workspace(), s_);
      t_.mark("weight's gradient");
    }
    if (db.data != nullptr) {
      kernels::gpu::bias_backward(dy, floats(db), t_.scratch_.workspace(), s_);
      t_.mark("bias's gradient");
    }
    shape.product = BackwardProduct::input;
    linear_backward_input(t_.back_plans_(shape), dy, w, dx, t_.scratch_.workspace(), s_);
    t_.mark("input's gradient");
    if (t_.beside_ != nullptr) t_.beside_->after_back(index_, which, dx, s_);
  }

  /// The stream's gradient: the norm's, and what flows past it when `past`.
  void norm_back(const Matrix& x, const Matrix& weight, const float* mean, const float* inv,
                 const Matrix& dy, bool past, const Matrix& dweight, const Matrix& dbias) const {
    const Matrix dx = now(saved_.d_stream), add = past ? dx : Matrix{};
    if (c_.norm == NormKind::rmsnorm) {
      kernels::gpu::rmsnorm_backward(now(x), weight, inv, dy, add, dx, floats(dweight),
                                     t_.scratch_.workspace(), s_);
    } else {
      kernels::gpu::layernorm_backward(now(x), weight, mean, inv, dy, add, dx, floats(dweight),
                                       floats(dbias), t_.scratch_.workspace(), s_);
    }
    t_.mark("norm back");
  }

  GpuTraining& t_;
  const Config& c_;
  const GpuTensors &w_, &d_;
  GpuSaved& saved_;
  DType dtype_;
  Stream s_;
  std::size_t index_ = 0;
  const GpuTensors::Layer *layer_ = nullptr, *slope_ = nullptr;
  const GpuSavedLayer* keep_ = nullptr;
};

// Count scratch memory, and make.
namespace {

constexpr std::size_t kLibrary = std::size_t{32} << 20;  // what plans allow cuBLASLt

/// The most that one operation needs while it runs.
std::size_t scratch_bytes(const Config& c, const GpuTrainingOptions& options) {
  const std::int64_t t = options.shape.tokens, qd = c.heads * c.head_dim;
  const std::int64_t wide = qd + 2 * c.kv_heads * c.head_dim;
  const std::int64_t up = c.family == Family::gpt2 ? c.ffn : 2 * c.ffn;
  // No smaller batch is cut into more slices than a power of two.
  const auto even = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(t)));
  std::size_t partials = 0;
  for (const auto& [n, k] : std::array<std::array<std::int64_t, 2>, 4>{
           {{wide, c.hidden}, {c.hidden, qd}, {up, c.hidden}, {c.hidden, c.ffn}}}) {
    const std::int64_t slices = kernels::gpu::backward_slices(
        {.product = BackwardProduct::weight, .m = even, .n = n, .k = k, .in = options.shape.dtype});
    if (slices > 1) partials = std::max(partials, static_cast<std::size_t>(slices * n * k) * 4);
  }
  std::size_t most = kLibrary + partials;
  most = std::max(most, kernels::gpu::norm_backward_workspace(t, c.hidden));
  most = std::max(most, kernels::gpu::norm_backward_workspace(t * c.heads, c.head_dim));
  most = std::max(most, kernels::gpu::turn_heads_backward_workspace(c.head_dim));
  most = std::max(most, kernels::gpu::bias_backward_workspace(t, std::max(up, wide)));
  return std::max(most, kernels::gpu::embedding_backward_workspace(t));
}

/// The options, where the model can be trained under them.
const GpuTrainingOptions& checked(const Config& c, const GpuTrainingOptions& options) {
  check_gpu_model(c, DType::bf16);  // heads and widths; the type may be another
  if (c.family != Family::gpt2 && c.activation != Activation::silu) {
    throw core::Error(core::Code::unsupported, "only SiLU gates can be trained").in("activation");
  }
  if (options.shape.tokens <= 0 || options.shape.head_rows <= 0) {
    throw core::Error(core::Code::invalid_argument, "there must be room for some tokens")
        .in("shape");
  }
  return options;
}

std::size_t whole_bytes(const Config& c) {
  const std::int64_t rows = std::max(FlatLayout(c).padded_vocab(), c.max_positions);
  return static_cast<std::size_t>(rows * c.hidden) * sizeof(float);
}

}  // namespace

std::size_t GpuTraining::bytes(const Config& config, const GpuTrainingOptions& options,
                               std::span<const std::int32_t> row_offsets, bool accumulates) {
  const kernels::AttentionShape shape = attention_shape(config);
  return GpuSaved::bytes(config, options.shape) + scratch_bytes(config, options) +
         kernels::gpu::plan_attention(shape, row_offsets).workspace_bytes() +
         kernels::gpu::plan_attention_backward(shape, row_offsets).workspace_bytes() +
         (accumulates ? whole_bytes(config) : 0);
}

std::size_t GpuTraining::bytes() const {
  return GpuSaved::bytes(parameters_.config(), options_.shape) + scratch_.bytes() +
         attention_.bytes() + attention_back_.bytes() + whole_.bytes();
}

GpuTraining::GpuTraining(const GpuParameters& parameters, const GpuTrainingOptions& options)
    : parameters_(parameters),
      options_(checked(parameters.config(), options)),
      saved_(parameters.config(), options.shape),
      plans_(options.measured),
      back_plans_(options.measured, options.free),
      scratch_(scratch_bytes(parameters.config(), options)),
      fresh_(parameters.frozen()) {
  const auto tokens = static_cast<std::size_t>(options.shape.tokens);
  constexpr std::size_t least = 4096;  // frequencies pass through it, too
  staging_ = kernels::gpu::HostBuffer(std::max(least, 6 * tokens * sizeof(float)));
  const RopeSetup rope = rope_setup(parameters.config());
  rope_scale_ = rope.scale;
  std::memcpy(staging_.data(), rope.inv_freq.data(), rope.inv_freq.size() * sizeof(float));
  kernels::gpu::copy_to_device(saved_.inv_freq, staging_.data(),
                               rope.inv_freq.size() * sizeof(float), stream());
  const auto padding = static_cast<std::size_t>(saved_.d_logits.rows) *
                       kernels::row_bytes(options.shape.dtype, saved_.d_logits.cols);
  kernels::gpu::fill_bytes(saved_.d_logits.data, 0, padding,
                           stream());  // columns that nobody writes
  kernels::gpu::synchronize(stream());
}

// Bring a batch to the device, and plan its attention.
void GpuTraining::load(const GpuExamples& e) {
  const auto fail = [](const char* where, std::string message) {
    throw core::Error(core::Code::invalid_argument, std::move(message)).in(where);
  };
  const std::size_t tokens = e.batch.ids.size();
  if (tokens == 0 || static_cast<std::int64_t>(tokens) > options_.shape.tokens) {
    fail("tokens",
         fmt::format("{} tokens, where there is room for {}", tokens, options_.shape.tokens));
  }
  if (e.batch.positions.size() != tokens || e.targets.size() != tokens ||
      (!e.weights.empty() && e.weights.size() != tokens) || e.batch.row_offsets.empty() ||
      static_cast<std::size_t>(e.batch.row_offsets.back()) != tokens) {
    fail("batch", "ids, positions, targets, weights and row offsets are not of the same tokens");
  }
  const Config& c = parameters_.config();
  const auto outside = [](std::span<const std::int32_t> of, std::int32_t least, std::int64_t end) {
    return std::ranges::any_of(of, [&](std::int32_t i) { return i < least || i >= end; });
  };
  constexpr std::int32_t any = std::numeric_limits<std::int32_t>::min();
  if (outside(e.batch.ids, 0, c.vocab_size)) fail("ids", "one is outside the vocabulary");
  if (outside(e.targets, any, c.vocab_size)) fail("targets", "one is outside the vocabulary");
  if (outside(e.batch.positions, 0, c.max_positions)) {
    fail("positions", fmt::format("one is outside the model's {} positions", c.max_positions));
  }
  tokens_ = static_cast<std::int64_t>(tokens);
  weighted_ = !e.weights.empty();
  if (waiting_) kernels::gpu::synchronize(stream());  // the staging memory is still in use
  std::size_t at = 0;
  const auto send = [&]<class T>(T* to, std::span<const T> from) {
    std::memcpy(staging_.data() + at, from.data(), from.size_bytes());
    kernels::gpu::copy_to_device(to, staging_.data() + at, from.size_bytes(), stream());
    at += from.size_bytes();
  };
  send(saved_.ids, e.batch.ids);
  send(saved_.positions, e.batch.positions);
  send(saved_.targets, e.targets);
  if (weighted_) send(saved_.weights, e.weights);
  staged_ = at;
  if (std::ranges::equal(offsets_, e.batch.row_offsets)) return;
  offsets_.assign(e.batch.row_offsets.begin(), e.batch.row_offsets.end());
  const kernels::AttentionShape shape = attention_shape(parameters_.config());
  plan_ = kernels::gpu::plan_attention(shape, offsets_);
  back_plan_ = kernels::gpu::plan_attention_backward(shape, offsets_);
  const auto grow = [](kernels::gpu::Buffer& buffer, std::size_t bytes) {
    if (buffer.bytes() >= bytes) return;
    buffer = {};  // first: the peak is what is planned
    buffer = kernels::gpu::Buffer(bytes);
  };
  grow(attention_, plan_.workspace_bytes());
  grow(attention_back_, back_plan_.workspace_bytes());
  kernels::gpu::upload(plan_, attention_.workspace(), stream());
  kernels::gpu::upload(back_plan_, attention_back_.workspace(), stream());
  kernels::gpu::synchronize(stream());
}

// Score the hidden states, piece by piece.
void GpuTraining::score(float scale, bool train) {
  const Config& c = parameters_.config();
  const Matrix &head = parameters_.weights().head, &slope = parameters_.slopes().head;
  const DType dtype = parameters_.dtype();
  Matrix target = slope;
  if (train && !fresh_) target.data = whole_.data();
  for (std::int64_t first = 0; first < tokens_; first += options_.shape.head_rows) {
    const std::int64_t rows = std::min(options_.shape.head_rows, tokens_ - first);
    const auto at = static_cast<std::size_t>(first);
    Matrix hidden = saved_.hidden, out = saved_.logits, back = saved_.d_logits;
    hidden.data = static_cast<std::byte*>(hidden.data) + at * kernels::row_bytes(dtype, c.hidden);
    hidden.rows = out.rows = back.rows = rows;
    kernels::gpu::linear(
        plans_({.m = rows, .n = head.rows, .k = head.cols, .in = dtype, .out = DType::f32}),
        {.x = hidden, .w = head, .y = out}, scratch_.workspace(), stream());
    mark("head");
    Matrix words = out, d_words = back;  // without the padding
    words.cols = d_words.cols = c.vocab_size;
    words.stride = d_words.stride = head.rows;
    if (!train) {
      kernels::gpu::token_logprob(words, saved_.targets + at, saved_.losses + at, saved_.lse + at,
                                  stream());
      mark("cross-entropy");
      continue;
    }
    const bool in_place = dtype == DType::f16;  // the loss writes f32 and bf16
    kernels::gpu::cross_entropy(words, saved_.targets + at, scale, in_place ? words : d_words,
                                saved_.losses + at, saved_.lse + at, stream(),
                                {weighted_ ? saved_.weights + at : nullptr, options_.z});
    if (in_place) kernels::gpu::cast(out, back, stream());
    mark("cross-entropy");
    kernels::gpu::BackwardShape shape{
        .product = BackwardProduct::weight, .m = rows, .n = head.rows, .k = head.cols, .in = dtype};
    if (!parameters_.frozen()) {
      linear_backward_weight(back_plans_(shape), back, hidden, target, scratch_.workspace(),
                             stream());
    }
    shape.product = BackwardProduct::input;
    linear_backward_input(back_plans_(shape), back, head, hidden, scratch_.workspace(), stream());
    mark("head back");
  }
}

void GpuTraining::backward() {
  const Config& c = parameters_.config();
  const GpuTensors& d = parameters_.slopes();
  TrainingOperations on(*this);
  on.final_back();
  for (std::int64_t layer = c.layers; layer-- > 0;) {
    on.recompute(layer);
    on.feed_forward_back();
    on.attention_back();
  }
  if (parameters_.frozen()) return;
  const Matrix dx{saved_.d_stream.data, parameters_.dtype(), tokens_, c.hidden};
  const auto look_up = [&](const std::int32_t* rows, const Matrix& window, bool begun) {
    Matrix target = window;
    if (!fresh_) {
      target.data = whole_.data();
      const auto bytes = static_cast<std::size_t>(window.rows * window.cols) * sizeof(float);
      if (!begun) kernels::gpu::fill_bytes(target.data, 0, bytes, stream());
    }
    kernels::gpu::embedding_backward(rows, dx, target, scratch_.workspace(), stream());
    if (!fresh_) kernels::gpu::add(window, target, window, stream());
  };
  look_up(saved_.ids, d.embed, c.tied_head);
  if (c.family == Family::gpt2) look_up(saved_.positions, d.pos_embed, false);
  mark("embedding back");
}

void GpuTraining::zero_gradients() {
  if (parameters_.frozen()) return;
  const auto elements = static_cast<std::size_t>(parameters_.layout().size());
  kernels::gpu::fill_bytes(parameters_.gradients(), 0, elements * sizeof(float), stream());
  fresh_ = true;
}

void GpuTraining::forward() {
  if (watch_ != nullptr) watch_->start(stream());
  run_forward(parameters_.config(), TrainingOperations(*this));
}

void GpuTraining::accumulate(const GpuExamples& examples, float scale) {
  const Config& c = parameters_.config();
  load(examples);
  if (!fresh_) {
    if (whole_.bytes() == 0) whole_ = kernels::gpu::Buffer(whole_bytes(c));
    kernels::gpu::fill_bytes(whole_.data(), 0, whole_.bytes(), stream());
  }
  forward();
  trained_ = true;
  score(scale, true);
  tell();
  if (!fresh_ && !c.tied_head) {
    const Matrix& head = parameters_.slopes().head;
    Matrix part = head;
    part.data = whole_.data();
    kernels::gpu::add(head, part, head, stream());
  }
  backward();
  fresh_ = parameters_.frozen();
}

void GpuTraining::evaluate(const GpuExamples& examples) {
  load(examples);
  forward();
  trained_ = false;
  score(0.0f, false);
  tell();
}

std::vector<float> GpuTraining::logits() const {
  const auto v = static_cast<std::size_t>(parameters_.config().vocab_size);
  const auto padded = static_cast<std::size_t>(saved_.logits.cols);
  kernels::gpu::HostBuffer rows(static_cast<std::size_t>(tokens_) * padded * sizeof(float));
  kernels::gpu::copy_to_host(rows.data(), saved_.logits.data, rows.bytes(), stream());
  kernels::gpu::synchronize(stream());
  std::vector<float> all;
  for (std::size_t t = 0; t < static_cast<std::size_t>(tokens_); ++t) {
    const float* const row = rows.as<float>() + t * padded;
    all.insert(all.end(), row, row + v);
  }
  return all;
}

void GpuTraining::tell() {
  const auto tokens = static_cast<std::size_t>(tokens_);
  told_ = {staging_.as<float>(staged_), tokens};
  told_lse_ = {told_.data() + tokens, tokens};
  kernels::gpu::copy_to_host(told_.data(), saved_.losses, told_.size_bytes(), stream());
  kernels::gpu::copy_to_host(told_lse_.data(), saved_.lse, told_lse_.size_bytes(), stream());
  scored_.record(stream());
  waiting_ = true;
}

void GpuTraining::losses(std::span<float> losses, std::span<float> lse) {
  if (losses.size() != told_.size() || lse.size() != told_.size()) {
    throw core::Error(core::Code::invalid_argument, "one number for each token is needed")
        .in("losses");
  }
  scored_.wait();
  waiting_ = false;
  const auto* const targets = staging_.as<const std::int32_t>(2 * told_.size() * sizeof(float));
  for (std::size_t t = 0; t < losses.size(); ++t) {
    losses[t] = targets[t] < 0 ? 0.0f : trained_ ? told_[t] : -told_[t];
    lse[t] = told_lse_[t];
  }
}

}  // namespace rose::model
