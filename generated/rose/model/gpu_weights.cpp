// Hold a model's weights on a GPU.

#include "rose/model/gpu_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "rose/core/error.h"
#include "rose/kernels/quant.h"

namespace rose::model {
namespace {

using kernels::DType;
using kernels::MatrixView;
using kernels::gpu::Matrix;

// Walk over all places, each with the parts that fill it.

/// What fills a place: matrices one below the other, or rows of floats one behind the other.
struct Place {
  DType dtype;
  std::int64_t rows, cols;
  std::array<MatrixView, 3> parts{};

  std::size_t bytes() const {
    constexpr std::size_t line = 256;
    const std::size_t used = static_cast<std::size_t>(rows) * kernels::row_bytes(dtype, cols);
    return (used + line - 1) / line * line;
  }
};

MatrixView floats(const float* values, std::int64_t count) {
  return {.data = values, .dtype = DType::f32, .rows = 1, .cols = count};
}

Place matrix_place(std::int64_t rows, std::int64_t cols, const std::array<MatrixView, 3>& parts) {
  return {.dtype = DType::bf16, .rows = rows, .cols = cols, .parts = parts};
}
Place norm_place(const float* values, std::int64_t n) {
  return {.dtype = DType::f32, .rows = 1, .cols = n, .parts = {floats(values, n)}};
}
Place bias_place(const std::array<const float*, 3>& v, const std::array<std::int64_t, 3>& n) {
  Place place{.dtype = DType::bf16, .rows = 1, .cols = n[0] + n[1] + n[2]};
  for (std::size_t p = 0; p < n.size(); ++p) place.parts[p] = floats(v[p], n[p]);
  return place;
}

/// Calls visit(matrix, place) for every matrix of `to`, and visit_bias(pointer, place) for every bias, in a fixed order.
/// Without `from` the places have sizes only.
template <class Layers, class Visit, class VisitBias>
void walk_layers(const Config& c, const WeightSet* from, Layers& layers, const Visit& visit,
                 const VisitBias& visit_bias) {
  const std::int64_t qd = c.heads * c.head_dim, kd = c.kv_heads * c.head_dim;
  const bool gated = c.family != Family::gpt2, centred = c.norm == NormKind::layernorm;
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const LayerWeights w =
        from == nullptr ? LayerWeights{} : from->layers()[static_cast<std::size_t>(i)];
    auto& to = layers[static_cast<std::size_t>(i)];
    // The places of one block.
    const auto vector = [&](Matrix& m, const float* values, std::int64_t n) {
      visit(m, norm_place(values, n));
    };
    const auto bias = [&](const void*& b, const std::array<const float*, 3>& v,
                          const std::array<std::int64_t, 3>& n) {
      visit_bias(b, bias_place(v, n));
    };
    vector(to.attn_norm, w.attn_norm, c.hidden);
    if (centred) vector(to.attn_norm_bias, w.attn_norm_bias, c.hidden);
    visit(to.qkv, matrix_place(qd + 2 * kd, c.hidden, {w.q, w.k, w.v}));
    if (c.qkv_bias) bias(to.qkv_bias, {w.q_bias, w.k_bias, w.v_bias}, {qd, kd, kd});
    if (c.qk_norm) {
      vector(to.q_norm, w.q_norm, c.head_dim);
      vector(to.k_norm, w.k_norm, c.head_dim);
    }
    visit(to.o, matrix_place(c.hidden, qd, {w.o}));
    if (c.o_bias) bias(to.o_bias, {w.o_bias}, {c.hidden});
    vector(to.ffn_norm, w.ffn_norm, c.hidden);
    if (centred) vector(to.ffn_norm_bias, w.ffn_norm_bias, c.hidden);
    if (gated) {
      visit(to.up, matrix_place(2 * c.ffn, c.hidden, {w.gate, w.up}));
      if (c.mlp_bias) bias(to.up_bias, {w.gate_bias, w.up_bias}, {c.ffn, c.ffn});
    } else {
      visit(to.up, matrix_place(c.ffn, c.hidden, {w.up}));
      if (c.mlp_bias) bias(to.up_bias, {w.up_bias}, {c.ffn});
    }
    visit(to.down, matrix_place(c.hidden, c.ffn, {w.down}));
    if (c.mlp_bias) bias(to.down_bias, {w.down_bias}, {c.hidden});
  }
}

// Convert rows, and upload them.

/// Rows [first, first + count) of a matrix, as elements of `dtype`.
void convert(const MatrixView& from, std::int64_t first, std::int64_t count, DType dtype,
             std::span<std::byte> to, core::ThreadPool& pool) {
  const std::size_t row = kernels::row_bytes(dtype, from.cols);
  pool.for_range(count, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> values(static_cast<std::size_t>(from.cols));
    for (std::int64_t r = begin; r < end; ++r) {
      std::byte* const out = to.data() + static_cast<std::size_t>(r) * row;
      kernels::dequantize_row(from.dtype, from.row(first + r), values.data(), from.cols);
      if (dtype == DType::f32) {
        std::memcpy(out, values.data(), row);
        continue;
      }
      for (std::size_t i = 0; i < values.size(); ++i) {
        const kernels::bf16 rounded = kernels::to_bf16(values[i]);
        std::memcpy(out + i * sizeof rounded, &rounded, sizeof rounded);
      }
    }
  });
}

void fill(kernels::gpu::Buffer& memory, std::size_t at, const Place& place,
          std::vector<std::byte>& staging, core::ThreadPool& pool) {
  constexpr std::size_t chunk = std::size_t{8} << 20;
  for (const MatrixView& part : place.parts) {
    if (part.data == nullptr) continue;
    if (part.dtype == place.dtype) {
      memory.upload({static_cast<const std::byte*>(part.data), part.bytes()}, at);
      at += part.bytes();
      continue;
    }
    const std::size_t row = kernels::row_bytes(place.dtype, part.cols);
    const auto step = static_cast<std::int64_t>(std::max<std::size_t>(1, chunk / row));
    for (std::int64_t first = 0; first < part.rows; first += step) {
      const std::int64_t rows = std::min(step, part.rows - first);
      staging.resize(static_cast<std::size_t>(rows) * row);
      convert(part, first, rows, place.dtype, staging, pool);
      memory.upload(staging, at);
      at += staging.size();
    }
  }
}

}  // namespace

// Refuse a model that has no kernels.
void check_gpu_model(const Config& config, kernels::DType dtype) {
  const auto refuse = [](std::string message, const char* where, const char* hint) {
    throw core::Error(core::Code::unsupported, std::move(message)).in(where).hint(hint);
  };
  if (dtype != DType::bf16) {
    refuse(fmt::format("a forward pass on a GPU in {}", kernels::info(dtype).name), "dtype",
           "attention and norms have kernels for bf16");
  }
  constexpr std::array<std::int64_t, 4> heads{64, 96, 128, 256};
  if (std::ranges::find(heads, config.head_dim) == heads.end()) {
    refuse(fmt::format("heads of {} on a GPU", config.head_dim), "head_dim",
           "there are kernels for 64, 96, 128 and 256");
  }
  constexpr std::int64_t unit = 8;  // elements of 16 bytes
  if (config.hidden % unit != 0 || config.ffn % unit != 0) {
    refuse(fmt::format("a hidden size of {} with a feed-forward size of {} on a GPU", config.hidden,
                       config.ffn),
           "hidden", "both must be multiples of 8");
  }
}

// Measure, place, fill.
namespace {

template <class Visit, class VisitBias>
void walk(const Config& c, const WeightSet* from, std::vector<GpuLayer>& layers,
          std::array<Matrix*, 5> rest, const Visit& visit, const VisitBias& visit_bias) {
  const auto matrix = [&](const MatrixView& view, std::int64_t rows) {
    return matrix_place(rows, c.hidden, {view});
  };
  const auto vector = [&](const float* values) { return norm_place(values, c.hidden); };
  const bool have = from != nullptr;
  visit(*rest[0], matrix(have ? from->embed() : MatrixView{}, c.vocab_size));
  if (c.family == Family::gpt2) {
    visit(*rest[1], matrix(have ? from->pos_embed() : MatrixView{}, c.max_positions));
  }
  walk_layers(c, from, layers, visit, visit_bias);
  visit(*rest[2], vector(have ? from->norm() : nullptr));
  if (c.norm == NormKind::layernorm) visit(*rest[3], vector(have ? from->norm_bias() : nullptr));
  if (!c.tied_head) visit(*rest[4], matrix(have ? from->head() : MatrixView{}, c.vocab_size));
}

}  // namespace

std::size_t GpuWeights::bytes(const Config& config) {
  std::size_t total = 0;
  std::vector<GpuLayer> layers(static_cast<std::size_t>(config.layers));
  std::array<Matrix, 5> rest{};
  const auto measure = [&](const auto&, const Place& place) { total += place.bytes(); };
  walk(config, nullptr, layers, {&rest[0], &rest[1], &rest[2], &rest[3], &rest[4]}, measure,
       measure);
  return total;
}

GpuWeights::GpuWeights(const WeightSet& weights, core::ThreadPool& pool)
    : config_(weights.config()) {
  check_gpu_model(config_, dtype());
  layers_.resize(static_cast<std::size_t>(config_.layers));
  memory_ = kernels::gpu::Buffer(bytes(config_));
  assign(weights, pool);
}

void GpuWeights::assign(const WeightSet& weights, core::ThreadPool& pool) {
  std::size_t used = 0;
  std::vector<std::byte> staging;
  const auto next = [&](const Place& place) {
    void* const at = memory_.as<std::byte>() + used;
    fill(memory_, used, place, staging, pool);
    used += place.bytes();
    return at;
  };
  walk(
      config_, &weights, layers_, {&embed_, &pos_embed_, &norm_, &norm_bias_, &head_},
      [&](Matrix& m, const Place& place) {
        m = {next(place), place.dtype, place.rows, place.cols};
      },
      [&](const void*& b, const Place& place) { b = next(place); });
  if (config_.tied_head) head_ = embed_;
  version_ = weights.version();
}

}  // namespace rose::model
