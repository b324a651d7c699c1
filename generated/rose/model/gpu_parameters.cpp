// Keep the parameters of a model that is trained on a GPU.

#include "rose/model/gpu_parameters.h"

#include <algorithm>
#include <map>
#include <utility>

#include "rose/core/error.h"
#include "rose/kernels/gpu/elementwise.h"
#include "rose/kernels/gpu/graph.h"
#include "rose/kernels/quant.h"
#include "rose/model/files/names.h"

namespace rose::model {
namespace {

using kernels::DType;
using kernels::gpu::Matrix;

constexpr std::int64_t kUnit = 64;  // elements

std::int64_t rounded_up(std::int64_t n) {
  return (n + kUnit - 1) / kUnit * kUnit;
}

// Walk over all places, with the names of what lies there.
using Names = std::vector<std::pair<std::string, std::int64_t>>;  // and elements

/// Calls visit(matrix, is a norm's, rows, cols, names) in a fixed order.
template <class Visit>
void walk_layer(const Config& c, GpuTensors::Layer& l, const std::string& at, const Visit& visit) {
  const std::int64_t qd = c.heads * c.head_dim, kd = c.kv_heads * c.head_dim, h = c.hidden;
  const std::int64_t wide = c.family == Family::gpt2 ? c.ffn : 2 * c.ffn;
  const bool centred = c.norm == NormKind::layernorm, gated = c.family != Family::gpt2;
  const auto vector = [&](Matrix& m, bool norm, std::int64_t n, const Names& names) {
    visit(m, norm, 1, n, names);
  };
  vector(l.attn_norm, true, h, {{at + "attn_norm.weight", h}});
  if (centred) vector(l.attn_norm_bias, true, h, {{at + "attn_norm.bias", h}});
  visit(l.qkv, false, qd + 2 * kd, h,
        Names{{at + "attn.q.weight", qd * h},
              {at + "attn.k.weight", kd * h},
              {at + "attn.v.weight", kd * h}});
  if (c.qkv_bias) {
    vector(l.qkv_bias, false, qd + 2 * kd,
           {{at + "attn.q.bias", qd}, {at + "attn.k.bias", kd}, {at + "attn.v.bias", kd}});
  }
  if (c.qk_norm) {
    vector(l.q_norm, true, c.head_dim, {{at + "attn.q_norm.weight", c.head_dim}});
    vector(l.k_norm, true, c.head_dim, {{at + "attn.k_norm.weight", c.head_dim}});
  }
  visit(l.o, false, h, qd, Names{{at + "attn.o.weight", h * qd}});
  if (c.o_bias) vector(l.o_bias, false, h, {{at + "attn.o.bias", h}});
  vector(l.ffn_norm, true, h, {{at + "ffn_norm.weight", h}});
  if (centred) vector(l.ffn_norm_bias, true, h, {{at + "ffn_norm.bias", h}});
  Names up, up_bias;
  if (gated) up.emplace_back(at + "ffn.gate.weight", c.ffn * h);
  if (gated) up_bias.emplace_back(at + "ffn.gate.bias", c.ffn);
  up.emplace_back(at + "ffn.up.weight", c.ffn * h);
  up_bias.emplace_back(at + "ffn.up.bias", c.ffn);
  visit(l.up, false, wide, h, up);
  if (c.mlp_bias) vector(l.up_bias, false, wide, up_bias);
  visit(l.down, false, h, c.ffn, Names{{at + "ffn.down.weight", h * c.ffn}});
  if (c.mlp_bias) vector(l.down_bias, false, h, {{at + "ffn.down.bias", h}});
}

template <class Visit>
void walk(const Config& c, GpuTensors& t, const Visit& visit) {
  const std::int64_t padded = rounded_up(c.vocab_size), table = c.vocab_size * c.hidden;
  visit(t.embed, false, padded, c.hidden, Names{{"embed.weight", table}});
  if (c.family == Family::gpt2) {
    visit(t.pos_embed, false, c.max_positions, c.hidden,
          Names{{"pos_embed.weight", c.max_positions * c.hidden}});
  }
  t.layers.resize(static_cast<std::size_t>(c.layers));
  for (std::size_t l = 0; l < t.layers.size(); ++l) {
    walk_layer(c, t.layers[l], "layers." + std::to_string(l) + ".", visit);
  }
  visit(t.norm, true, 1, c.hidden, Names{{"norm.weight", c.hidden}});
  if (c.norm == NormKind::layernorm) {
    visit(t.norm_bias, true, 1, c.hidden, Names{{"norm.bias", c.hidden}});
  }
  if (!c.tied_head) visit(t.head, false, padded, c.hidden, Names{{"head.weight", table}});
}

/// Where each visited place begins: the same sequence on every walk.
class Places {
 public:
  std::int64_t next(std::int64_t rows, std::int64_t cols) {
    return std::exchange(used_, used_ + rounded_up(rows * cols));
  }
  std::int64_t used() const { return used_; }

 private:
  std::int64_t used_ = 0;
};

}  // namespace

// Place, view, cut into blocks.
FlatLayout::FlatLayout(const Config& config) : config_(config) {
  std::map<std::string, std::int64_t> firsts, norms;
  GpuTensors unused;
  Places places, among_norms;
  walk(config, unused,
       [&](Matrix&, bool norm, std::int64_t rows, std::int64_t cols, const Names& names) {
         std::int64_t at = places.next(rows, cols);
         if (norm) norms[names.front().first] = among_norms.next(rows, cols);
         for (const auto& [name, elements] : names) firsts[name] = std::exchange(at, at + elements);
       });
  size_ = places.used();
  norms_ = among_norms.used();
  for (const ExpectedTensor& expected : expected_tensors(config)) {
    FlatTensor tensor{.name = expected.name, .shape = expected.shape, .elements = 1};
    for (const std::int64_t n : expected.shape) tensor.elements *= n;
    tensor.first = firsts.at(expected.name);
    if (const auto found = norms.find(expected.name); found != norms.end())
      tensor.norm = found->second;
    tensors_.push_back(std::move(tensor));
  }
}

std::int64_t FlatLayout::padded_vocab() const {
  return rounded_up(config_.vocab_size);
}

GpuTensors FlatLayout::views(void* values, DType dtype, float* norms) const {
  GpuTensors views;
  Places places;
  const auto bytes = static_cast<std::int64_t>(kernels::row_bytes(dtype, 1));
  walk(config_, views,
       [&](Matrix& m, bool norm, std::int64_t rows, std::int64_t cols, const Names&) {
         const std::int64_t at = places.next(rows, cols);
         m = {.dtype = norm ? DType::f32 : dtype, .rows = rows, .cols = cols};
         m.data =
             norm ? static_cast<void*>(norms + at) : static_cast<std::byte*>(values) + at * bytes;
       });
  if (config_.tied_head) views.head = views.embed;
  return views;
}

GpuTensors FlatLayout::frozen_views(void* values, DType dtype, float* norms) const {
  GpuTensors views = this->views(values, dtype, norms);
  Places places;
  walk(config_, views,
       [&](Matrix& m, bool norm, std::int64_t rows, std::int64_t cols, const Names&) {
         if (norm) m.data = norms + places.next(rows, cols);
       });
  return views;
}

GpuTensors FlatLayout::no_slopes(float* place) const {
  GpuTensors views;
  walk(config_, views,
       [&](Matrix& m, bool norm, std::int64_t rows, std::int64_t cols, const Names&) {
         m = norm ? Matrix{place, DType::f32, rows, cols} : Matrix{};
       });
  return views;
}

std::vector<kernels::gpu::FlatBlock> FlatLayout::blocks(
    const std::function<int(const FlatTensor&)>& group) const {
  std::vector<kernels::gpu::FlatBlock> blocks;
  for (const FlatTensor& tensor : tensors_) {
    const std::int32_t of = group(tensor);
    if (of < 0) continue;
    for (std::int64_t at = 0; at < tensor.elements; at += kernels::norm_block) {
      const std::int64_t left = std::min(kernels::norm_block, tensor.elements - at);
      blocks.push_back({tensor.first + at, static_cast<std::int32_t>(left), of});
    }
  }
  return blocks;
}

// Upload, download, round.
std::size_t GpuParameters::bytes(const Config& config, DType dtype, bool frozen) {
  const FlatLayout layout(config);
  const auto size = static_cast<std::size_t>(layout.size()), rounded = kernels::row_bytes(dtype, 1);
  const auto norms =
      static_cast<std::size_t>(layout.norm_elements() + config.hidden + config.head_dim);
  if (frozen) return size * rounded + norms * sizeof(float);
  return size * (2 * sizeof(float) + (dtype == DType::f32 ? 0 : rounded));
}

GpuParameters::GpuParameters(const WeightSet& weights, DType dtype, bool frozen)
    : layout_(weights.config()),
      dtype_(dtype),
      frozen_(frozen),
      memory_(bytes(weights.config(), dtype, frozen)) {
  kernels::gpu::fill_bytes(memory_.data(), 0, memory_.bytes(), {});
  kernels::gpu::synchronize({});
  if (frozen) {
    auto* const norms = reinterpret_cast<float*>(memory_.as<std::byte>() +
                                                 kernels::row_bytes(dtype, layout_.size()));
    weights_ = layout_.frozen_views(memory_.data(), dtype, norms);
    slopes_ = layout_.no_slopes(norms + layout_.norm_elements());
  } else {
    weights_ = layout_.views(dtype == DType::f32 ? masters() : copy(), dtype, masters());
    slopes_ = layout_.views(gradients(), DType::f32, gradients());
  }
  fill(weights);
}

void GpuParameters::fill(const WeightSet& weights) {
  std::vector<float> values;
  for (const FlatTensor& tensor : layout_.tensors()) {
    const kernels::MatrixView view = weights.parameter(tensor.name).view();
    values.resize(static_cast<std::size_t>(tensor.elements));
    for (std::int64_t row = 0; row < view.rows; ++row) {
      kernels::dequantize_row(view.dtype, view.row(row), values.data() + row * view.cols,
                              view.cols);
    }
    frozen_ ? place_frozen(tensor, values) : upload(tensor, values);
  }
  if (!frozen_) refresh({});
  kernels::gpu::synchronize({});
}

void GpuParameters::place_frozen(const FlatTensor& tensor, std::span<const float> values) {
  const std::size_t norms = kernels::row_bytes(dtype_, layout_.size());
  if (tensor.norm >= 0) {
    const auto at = static_cast<std::size_t>(tensor.norm) * sizeof(float);
    return memory_.upload(std::as_bytes(values), norms + at);
  }
  std::vector<std::byte> rounded(kernels::row_bytes(dtype_, tensor.elements));
  kernels::quantize_row(dtype_, values.data(), rounded.data(), tensor.elements);
  memory_.upload(rounded, kernels::row_bytes(dtype_, tensor.first));
}

void* GpuParameters::copy() const {
  return dtype_ == DType::f32 ? nullptr
                              : static_cast<void*>(memory_.as<float>() + 2 * layout_.size());
}

void GpuParameters::upload(const FlatTensor& tensor, std::span<const float> values) {
  memory_.upload(std::as_bytes(values), static_cast<std::size_t>(tensor.first) * sizeof(float));
}

void GpuParameters::download(const FlatTensor& tensor, std::span<float> values) const {
  memory_.download(std::as_writable_bytes(values),
                   static_cast<std::size_t>(tensor.first) * sizeof(float));
}

void GpuParameters::download_gradient(const FlatTensor& tensor, std::span<float> values) const {
  memory_.download(std::as_writable_bytes(values),
                   static_cast<std::size_t>(layout_.size() + tensor.first) * sizeof(float));
}

void GpuParameters::refresh(kernels::gpu::Stream stream) const {
  if (copy() == nullptr) return;
  const std::int64_t rows = layout_.size() / kUnit;
  kernels::gpu::cast({masters(), DType::f32, rows, kUnit}, {copy(), dtype_, rows, kUnit}, stream);
}

}  // namespace rose::model
