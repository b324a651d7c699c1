// Lay out what a training step on a GPU keeps.

#include "rose/model/gpu_saved.h"

#include <algorithm>

#include "rose/kernels/dtype.h"

namespace rose::model {
namespace {

using kernels::DType;
using kernels::gpu::Matrix;

// Hand out pieces of device memory, or only measure.
class Pieces {
 public:
  explicit Pieces(std::byte* memory) : memory_(memory) {}
  template <class T>
  T* take(std::int64_t count) {
    constexpr std::size_t line = 256;
    std::byte* const at = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += (static_cast<std::size_t>(count) * sizeof(T) + line - 1) / line * line;
    return reinterpret_cast<T*>(at);
  }
  Matrix matrix(std::int64_t rows, std::int64_t cols, DType dtype) {
    const auto bytes = static_cast<std::int64_t>(kernels::row_bytes(dtype, cols));
    return {.data = take<std::byte>(rows * bytes), .dtype = dtype, .rows = rows, .cols = cols};
  }
  std::size_t used() const { return used_; }

 private:
  std::byte* memory_;
  std::size_t used_ = 0;
};

// The pieces of one block, by what they cost to compute again.
void lay_cheap(const Config& c, const GpuTrainingShape& s, Pieces& from, GpuSavedLayer& to) {
  const auto matrix = [&](std::int64_t cols) { return from.matrix(s.tokens, cols, s.dtype); };
  to.normed = matrix(c.hidden);
  if (c.qk_norm) to.turned = matrix((c.heads + c.kv_heads) * c.head_dim);
  to.ffn_normed = matrix(c.hidden);
  to.activated = matrix(c.ffn);
}

void lay_dear(const Config& c, const GpuTrainingShape& s, Pieces& from, GpuSavedLayer& to) {
  const auto matrix = [&](std::int64_t cols) { return from.matrix(s.tokens, cols, s.dtype); };
  const bool centred = c.norm == NormKind::layernorm;
  to.qkv = matrix((c.heads + 2 * c.kv_heads) * c.head_dim);
  to.attended = matrix(c.heads * c.head_dim);
  to.middle = matrix(c.hidden);
  to.up = matrix(c.family == Family::gpt2 ? c.ffn : 2 * c.ffn);
  if (centred) to.mean = from.take<float>(s.tokens);
  if (centred) to.ffn_mean = from.take<float>(s.tokens);
  to.inv = from.take<float>(s.tokens);
  to.ffn_inv = from.take<float>(s.tokens);
  if (c.qk_norm) to.q_inv = from.take<float>(s.tokens * c.heads);
  if (c.qk_norm) to.k_inv = from.take<float>(s.tokens * c.kv_heads);
  to.lse = from.take<float>(s.tokens * c.heads);
}

// All pieces.
template <class To>
void lay_out(const Config& c, const GpuTrainingShape& s, Pieces& from, To& to) {
  constexpr std::int64_t unit = 64;
  const std::int64_t t = s.tokens, qd = c.heads * c.head_dim;
  const std::int64_t wide = qd + 2 * c.kv_heads * c.head_dim;
  const std::int64_t padded = (c.vocab_size + unit - 1) / unit * unit;
  GpuSavedLayer shared{};
  if (s.recompute != Recompute::nothing) lay_cheap(c, s, from, shared);
  if (s.recompute == Recompute::blocks) lay_dear(c, s, from, shared);
  to.layers.assign(static_cast<std::size_t>(c.layers), shared);
  for (GpuSavedLayer& layer : to.layers) {
    layer.input = from.matrix(t, c.hidden, s.dtype);
    if (s.recompute == Recompute::nothing) lay_cheap(c, s, from, layer);
    if (s.recompute != Recompute::blocks) lay_dear(c, s, from, layer);
  }
  to.final_input = from.matrix(t, c.hidden, s.dtype);
  to.hidden = from.matrix(t, c.hidden, s.dtype);
  to.final_mean = from.take<float>(c.norm == NormKind::layernorm ? t : 0);
  to.final_inv = from.take<float>(t);
  const std::int64_t angles = c.family == Family::gpt2 ? 0 : c.head_dim / 2;
  to.cos = from.take<float>(t * angles);
  to.sin = from.take<float>(t * angles);
  to.inv_freq = from.take<float>(angles);
  to.change = from.matrix(t, std::max(c.hidden, qd), s.dtype);
  to.d_stream = from.matrix(t, c.hidden, s.dtype);
  to.d_qkv = from.matrix(t, wide, s.dtype);
  to.logits = from.matrix(s.head_rows, padded, DType::f32);
  to.d_logits = s.dtype == DType::f32 ? to.logits : from.matrix(s.head_rows, padded, s.dtype);
  to.losses = from.take<float>(t);
  to.lse = from.take<float>(t);
  to.ids = from.take<std::int32_t>(t);
  to.positions = from.take<std::int32_t>(t);
  to.targets = from.take<std::int32_t>(t);
  to.weights = from.take<float>(t);
}

}  // namespace

// Measure, then make.
namespace {

/// The members that lay_out fills, for measuring.
struct Measured {
  std::vector<GpuSavedLayer> layers;
  Matrix final_input, hidden, change, d_stream, d_qkv, logits, d_logits;
  float *final_mean, *final_inv, *cos, *sin, *inv_freq, *losses, *lse, *weights;
  std::int32_t *ids, *positions, *targets;
};

}  // namespace

std::size_t GpuSaved::bytes(const Config& config, const GpuTrainingShape& shape) {
  Pieces measure(nullptr);
  Measured unused{};
  lay_out(config, shape, measure, unused);
  return measure.used();
}

GpuSaved::GpuSaved(const Config& config, const GpuTrainingShape& shape)
    : shape_(shape), memory_(bytes(config, shape)) {
  Pieces pieces(memory_.as<std::byte>());
  lay_out(config, shape, pieces, *this);
}

}  // namespace rose::model
