// Pack a model's matrices into few bits.

#include "rose/model/packed_weights.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "rose/core/error.h"
#include "rose/core/log.h"
#include "rose/kernels/packed.h"

namespace rose::model {

// Read the name of a format.
PackOptions parse_quantization(std::string_view name, std::int64_t group) {
  using kernels::gpu::WeightFormat;
  constexpr std::int64_t usual = 128, unit = 32;
  PackOptions options;
  if (name == "none" || name.empty()) return options;
  if (name == "int8") {
    options.format = WeightFormat::int8;
  } else if (name == "int4") {
    options.format = WeightFormat::int4;
  } else if (name == "fp8") {
    options.format = WeightFormat::fp8_e4m3;
  } else {
    const bool by_file = name == "gptq" || name == "awq" || name == "compressed-tensors";
    throw core::Error(core::Code::invalid_argument,
                      fmt::format("'{}' is not a format that weights are packed into", name))
        .in("quantization")
        .hint(by_file ? "such a checkpoint says so itself: leave the option away"
                      : "none, int8, int4 or fp8");
  }
  options.group = group >= 0 ? group : name == "fp8" ? 0 : usual;
  if (options.group % unit != 0)
    throw core::Error(core::Code::invalid_argument,
                      fmt::format("groups of {} columns are no multiples of 32", options.group))
        .in("quantization-group-size");
  return options;
}

// Replace the matrices of a copy.
class WeightPacker {
 public:
  WeightPacker(const WeightSet& from, const PackOptions& options, core::ThreadPool& pool)
      : set_(std::make_shared<WeightSet>(from)), options_(options), pool_(&pool) {}

  std::shared_ptr<const WeightSet> pack() {
    WeightSet& set = *set_;
    set.plain_ = true;
    set.packed_bytes_ = 0;
    std::int64_t left = 0;
    for (Parameter& p : set.parameters_) {
      if (p.shape.size() != 2 || !p.name.starts_with("layers.")) continue;
      if (p.packed == nullptr && options_.format &&
          kernels::can_pack(*options_.format, p.shape[1], options_.group)) {
        p.packed = std::make_shared<const kernels::PackedMatrix>(
            kernels::pack_matrix(p.view(), *options_.format, options_.group, *pool_));
      }
      if (p.packed == nullptr) {
        ++left;
        continue;
      }
      set.packed_bytes_ += p.packed->bytes();
      if (options_.plain)
        unpack(p);
      else
        p.data = nullptr, p.dtype = kernels::DType::bf16, set.plain_ = false;
    }
    if (options_.format) set.quantization_ = describe();
    if (left > 0) core::log(core::LogLevel::info, "{} matrices stay as they are", left);
    link();
    return set_;
  }

 private:
  std::string describe() const {
    const auto format = kernels::name(*options_.format);
    if (options_.group == 0) return fmt::format("{} with a scale for each row", format);
    return fmt::format("{} in groups of {}", format, options_.group);
  }

  void unpack(Parameter& p) {
    at::Tensor storage = at::empty(p.shape, at::kBFloat16);
    auto* const to = static_cast<kernels::bf16*>(storage.data_ptr());
    pool_->for_range(p.shape[0], 1, [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> row(static_cast<std::size_t>(p.shape[1]));
      for (std::int64_t r = begin; r < end; ++r) {
        kernels::unpack_row(*p.packed, r, row.data());
        for (std::size_t k = 0; k < row.size(); ++k)
          to[r * p.shape[1] + static_cast<std::int64_t>(k)] = kernels::to_bf16(row[k]);
      }
    });
    p.data = to;
    p.dtype = kernels::DType::bf16;
    set_->owners_.push_back(std::make_shared<at::Tensor>(std::move(storage)));
  }

  /// Points the blocks at the new matrices.
  void link() {
    using Packed = LayerWeights::Packed;
    struct Matrix {
      const char* name;
      kernels::MatrixView LayerWeights::*view;
      const kernels::PackedMatrix* Packed::*packed;
    };
    constexpr std::array<Matrix, 7> matrices{{
        {"attn.q", &LayerWeights::q, &Packed::q},
        {"attn.k", &LayerWeights::k, &Packed::k},
        {"attn.v", &LayerWeights::v, &Packed::v},
        {"attn.o", &LayerWeights::o, &Packed::o},
        {"ffn.gate", &LayerWeights::gate, &Packed::gate},
        {"ffn.up", &LayerWeights::up, &Packed::up},
        {"ffn.down", &LayerWeights::down, &Packed::down},
    }};
    for (std::size_t i = 0; i < set_->layers_.size(); ++i) {
      LayerWeights& layer = set_->layers_[i];
      for (const Matrix& m : matrices) {
        if ((layer.*m.view).rows == 0) continue;
        const Parameter& p = set_->parameter(fmt::format("layers.{}.{}.weight", i, m.name));
        if (p.packed == nullptr) continue;
        layer.*m.view = p.view();
        layer.packed.*m.packed = p.packed.get();
      }
    }
  }

  std::shared_ptr<WeightSet> set_;
  PackOptions options_;
  core::ThreadPool* pool_;
};

std::shared_ptr<const WeightSet> pack_weights(const std::shared_ptr<const WeightSet>& weights,
                                              const PackOptions& options, core::ThreadPool& pool) {
  const bool packed = !weights->quantization().empty();
  if (packed && options.format) {
    throw core::Error(core::Code::invalid_argument,
                      fmt::format("the weights are {} already", weights->quantization()))
        .in("quantization");
  }
  const bool unpack = packed && options.plain && !weights->plain();
  if (!options.format && !unpack) return weights;
  return WeightPacker(*weights, options, pool).pack();
}

}  // namespace rose::model
