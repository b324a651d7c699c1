// Hold a model's weights on a GPU.

#include "rose/model/gpu_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>
#include <vector>

#include "rose/core/error.h"
#include "rose/kernels/packed.h"
#include "rose/kernels/quant.h"

namespace rose::model {
namespace {

using kernels::DType;
using kernels::MatrixView;
using kernels::PackedMatrix;
using kernels::gpu::Matrix;
using kernels::gpu::PackedWeight;

// Walk over all places, each with the parts that fill it.
std::size_t lines(std::size_t bytes) {
  constexpr std::size_t line = 256;
  return (bytes + line - 1) / line * line;
}

// Say what fills a place.

/// Matrices one below the other, or rows of floats one behind the other.
struct Place {
  DType dtype;
  std::int64_t rows, cols;
  std::array<MatrixView, 3> parts{};
  std::array<const PackedMatrix*, 3> packed{};  ///< of the parts, where they are packed

  /// The packing that all parts share; null: they have none in common.
  const PackedMatrix* shared() const {
    const PackedMatrix* const first = packed[0];
    for (std::size_t p = 0; p < parts.size(); ++p) {
      if (parts[p].rows == 0 && packed[p] == nullptr) continue;
      const PackedMatrix* const other = packed[p];
      if (other == nullptr || first == nullptr || other->format != first->format ||
          other->group != first->group || other->zeros.empty() != first->zeros.empty())
        return nullptr;
    }
    return first == nullptr || !kernels::can_pack(first->format, cols, first->group) ? nullptr
                                                                                     : first;
  }

  std::size_t bytes() const {
    const PackedMatrix* const packing = shared();
    if (packing == nullptr)
      return lines(static_cast<std::size_t>(rows) * kernels::row_bytes(dtype, cols));
    const auto count = static_cast<std::size_t>(rows),
               groups = count * static_cast<std::size_t>(packing->groups());
    return lines(count * static_cast<std::size_t>(packing->row_bytes())) +
           lines(groups * sizeof(float)) + (packing->zeros.empty() ? 0 : lines(groups));
  }
};

MatrixView floats(const float* values, std::int64_t count) {
  return {.data = values, .dtype = DType::f32, .rows = 1, .cols = count};
}

Place matrix_place(DType dtype, std::int64_t rows, std::int64_t cols,
                   const std::array<MatrixView, 3>& parts,
                   const std::array<const PackedMatrix*, 3>& packed = {}) {
  return {.dtype = dtype, .rows = rows, .cols = cols, .parts = parts, .packed = packed};
}
Place norm_place(const float* values, std::int64_t n) {
  return {.dtype = DType::f32, .rows = 1, .cols = n, .parts = {floats(values, n)}};
}
Place bias_place(DType dtype, const std::array<const float*, 3>& v,
                 const std::array<std::int64_t, 3>& n) {
  Place place{.dtype = dtype, .rows = 1, .cols = n[0] + n[1] + n[2]};
  for (std::size_t p = 0; p < n.size(); ++p) place.parts[p] = floats(v[p], n[p]);
  return place;
}

/// Calls visit(to, place) for every matrix, bias (a pointer) and packed weight of `layers`, in a fixed order. Without `from` the places
/// have sizes only.
template <class Layers, class Visit>
void walk_layers(const Config& c, DType dtype, const WeightSet* from, Layers& layers,
                 const Visit& visit) {
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
      visit(b, bias_place(dtype, v, n));
    };
    const auto product = [&](Matrix& m, PackedWeight& p, const Place& place) {
      if (place.shared() != nullptr)
        visit(p, place);
      else
        visit(m, place);
    };
    const LayerWeights::Packed& few = w.packed;
    vector(to.attn_norm, w.attn_norm, c.hidden);
    if (centred) vector(to.attn_norm_bias, w.attn_norm_bias, c.hidden);
    product(to.qkv, to.packed_qkv,
            matrix_place(dtype, qd + 2 * kd, c.hidden, {w.q, w.k, w.v}, {few.q, few.k, few.v}));
    if (c.qkv_bias) bias(to.qkv_bias, {w.q_bias, w.k_bias, w.v_bias}, {qd, kd, kd});
    if (c.qk_norm) {
      vector(to.q_norm, w.q_norm, c.head_dim);
      vector(to.k_norm, w.k_norm, c.head_dim);
    }
    product(to.o, to.packed_o, matrix_place(dtype, c.hidden, qd, {w.o}, {few.o}));
    if (c.o_bias) bias(to.o_bias, {w.o_bias}, {c.hidden});
    vector(to.ffn_norm, w.ffn_norm, c.hidden);
    if (centred) vector(to.ffn_norm_bias, w.ffn_norm_bias, c.hidden);
    if (gated) {
      product(to.up, to.packed_up,
              matrix_place(dtype, 2 * c.ffn, c.hidden, {w.gate, w.up}, {few.gate, few.up}));
      if (c.mlp_bias) bias(to.up_bias, {w.gate_bias, w.up_bias}, {c.ffn, c.ffn});
    } else {
      product(to.up, to.packed_up, matrix_place(dtype, c.ffn, c.hidden, {w.up}, {few.up}));
      if (c.mlp_bias) bias(to.up_bias, {w.up_bias}, {c.ffn});
    }
    product(to.down, to.packed_down, matrix_place(dtype, c.hidden, c.ffn, {w.down}, {few.down}));
    if (c.mlp_bias) bias(to.down_bias, {w.down_bias}, {c.hidden});
  }
}

// Convert rows, and upload them.

/// Rows [first, first + count) of a matrix, which may be packed, as elements of `dtype`.
void convert(const MatrixView& from, const PackedMatrix* packed, std::int64_t first,
             std::int64_t count, DType dtype, std::span<std::byte> to, core::ThreadPool& pool) {
  const std::size_t row = kernels::row_bytes(dtype, from.cols);
  pool.for_range(count, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> values(static_cast<std::size_t>(from.cols));
    for (std::int64_t r = begin; r < end; ++r) {
      std::byte* const out = to.data() + static_cast<std::size_t>(r) * row;
      if (from.data == nullptr)
        kernels::unpack_row(*packed, first + r, values.data());
      else
        kernels::dequantize_row(from.dtype, from.row(first + r), values.data(), from.cols);
      if (dtype == DType::f32) {
        std::memcpy(out, values.data(), row);
        continue;
      }
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto put = [&](auto rounded) {
          std::memcpy(out + i * sizeof rounded, &rounded, sizeof rounded);
        };
        if (dtype == DType::f16)
          put(kernels::to_f16(values[i]));
        else
          put(kernels::to_bf16(values[i]));
      }
    }
  });
}

void fill(kernels::gpu::Buffer& memory, std::size_t at, const Place& place,
          std::vector<std::byte>& staging, core::ThreadPool& pool) {
  constexpr std::size_t chunk = std::size_t{8} << 20;
  for (std::size_t p = 0; p < place.parts.size(); ++p) {
    const MatrixView& part = place.parts[p];
    if (part.data == nullptr && place.packed[p] == nullptr) continue;
    if (part.data != nullptr && part.dtype == place.dtype) {
      memory.upload({static_cast<const std::byte*>(part.data), part.bytes()}, at);
      at += part.bytes();
      continue;
    }
    const std::size_t row = kernels::row_bytes(place.dtype, part.cols);
    const auto step = static_cast<std::int64_t>(std::max<std::size_t>(1, chunk / row));
    for (std::int64_t first = 0; first < part.rows; first += step) {
      const std::int64_t rows = std::min(step, part.rows - first);
      staging.resize(static_cast<std::size_t>(rows) * row);
      convert(part, place.packed[p], first, rows, place.dtype, staging, pool);
      memory.upload(staging, at);
      at += staging.size();
    }
  }
}

// Upload what is packed, as it is.
PackedWeight fill_packed(kernels::gpu::Buffer& memory, std::size_t at, const Place& place) {
  const PackedMatrix& packing = *place.shared();
  const std::byte* const base = memory.as<std::byte>();
  const auto next = [&](const auto& array_of) {
    const std::size_t begin = at;
    for (const PackedMatrix* part : place.packed) {
      if (part == nullptr) continue;
      const auto bytes = std::as_bytes(std::span(array_of(*part)));
      memory.upload(bytes, at);
      at += bytes.size();
    }
    at = lines(at);
    return base + begin;
  };
  PackedWeight to{
      .format = packing.format, .rows = place.rows, .cols = place.cols, .group = packing.group};
  using Bytes = std::vector<std::uint8_t>;
  to.data = next([](const PackedMatrix& p) -> const Bytes& { return p.data; });
  to.scales = reinterpret_cast<const float*>(
      next([](const PackedMatrix& p) -> const std::vector<float>& { return p.scales; }));
  if (!packing.zeros.empty())
    to.zeros = reinterpret_cast<const std::uint8_t*>(
        next([](const PackedMatrix& p) -> const Bytes& { return p.zeros; }));
  return to;
}

}  // namespace

// Refuse a model that has no kernels.
void check_gpu_model(const Config& config, kernels::DType dtype) {
  const auto refuse = [](std::string message, const char* where, const char* hint) {
    throw core::Error(core::Code::unsupported, std::move(message)).in(where).hint(hint);
  };
  if (dtype != DType::bf16 && dtype != DType::f16 && dtype != DType::f32) {
    refuse(fmt::format("a forward pass on a GPU in {}", kernels::info(dtype).name), "dtype",
           "there are kernels for bf16, f16 and f32");
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

template <class Visit>
void walk(const Config& c, DType dtype, const WeightSet* from, std::vector<GpuLayer>& layers,
          std::array<Matrix*, 5> rest, const Visit& visit) {
  const auto matrix = [&](const MatrixView& view, std::int64_t rows) {
    return matrix_place(dtype, rows, c.hidden, {view});
  };
  const auto vector = [&](const float* values) { return norm_place(values, c.hidden); };
  const bool have = from != nullptr;
  visit(*rest[0], matrix(have ? from->embed() : MatrixView{}, c.vocab_size));
  if (c.family == Family::gpt2) {
    visit(*rest[1], matrix(have ? from->pos_embed() : MatrixView{}, c.max_positions));
  }
  walk_layers(c, dtype, from, layers, visit);
  visit(*rest[2], vector(have ? from->norm() : nullptr));
  if (c.norm == NormKind::layernorm) visit(*rest[3], vector(have ? from->norm_bias() : nullptr));
  if (!c.tied_head) visit(*rest[4], matrix(have ? from->head() : MatrixView{}, c.vocab_size));
}

std::size_t measure(const Config& config, DType dtype, const WeightSet* weights) {
  std::size_t total = 0;
  std::vector<GpuLayer> layers(static_cast<std::size_t>(config.layers));
  std::array<Matrix, 5> rest{};
  walk(config, dtype, weights, layers, {&rest[0], &rest[1], &rest[2], &rest[3], &rest[4]},
       [&](const auto&, const Place& place) { total += place.bytes(); });
  return total;
}

}  // namespace

std::size_t GpuWeights::bytes(const Config& config, DType dtype) {
  return measure(config, dtype, nullptr);
}

std::size_t GpuWeights::bytes(const WeightSet& weights, DType dtype) {
  return measure(weights.config(), dtype, &weights);
}

GpuWeights::GpuWeights(const WeightSet& weights, DType dtype, core::ThreadPool& pool)
    : config_(weights.config()), dtype_(dtype), bytes_(bytes(weights, dtype)) {
  check_gpu_model(config_, dtype);
  if (dtype != DType::bf16 && !weights.quantization().empty())
    throw core::Error(core::Code::unsupported,
                      fmt::format("weights in {} beside activations in {}", weights.quantization(),
                                  kernels::info(dtype).name))
        .in("dtype")
        .hint("packed weights are multiplied by activations in bfloat16");
  layers_.resize(static_cast<std::size_t>(config_.layers));
  memory_ = kernels::gpu::Buffer(bytes_);
  assign(weights, pool);
}

void GpuWeights::assign(const WeightSet& weights, core::ThreadPool& pool) {
  if (bytes(weights, dtype_) != bytes_)
    throw core::Error(core::Code::invalid_argument, "the new weights are packed in another way")
        .in("weights");
  std::size_t used = 0;
  std::vector<std::byte> staging;
  packed_ = false;
  walk(config_, dtype_, &weights, layers_, {&embed_, &pos_embed_, &norm_, &norm_bias_, &head_},
       [&](auto& to, const Place& place) {
         using To = std::remove_reference_t<decltype(to)>;
         if constexpr (std::is_same_v<To, PackedWeight>) {
           to = fill_packed(memory_, used, place);
           packed_ = true;
         } else {
           const void* const at = memory_.as<std::byte>() + used;
           fill(memory_, used, place, staging, pool);
           if constexpr (std::is_same_v<To, Matrix>)
             to = {const_cast<void*>(at), place.dtype, place.rows, place.cols};
           else
             to = at;
         }
         used += place.bytes();
       });
  if (config_.tied_head) head_ = embed_;
  version_ = weights.version();
}

}  // namespace rose::model
