// Hold a model's weights, named and shaped.

#include "rose/model/weights.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "rose/core/error.h"
#include "rose/core/parallel.h"
#include "rose/core/rng.h"
#include "rose/kernels/panels.h"
#include "rose/kernels/quant.h"
#include "rose/model/files/checkpoint.h"
#include "rose/model/files/names.h"

namespace rose::model {

// View one tensor as a matrix, or as floats to change.
kernels::MatrixView Parameter::view() const {
  const std::int64_t rows = shape.size() == 2 ? shape[0] : 1;
  return {.data = data, .dtype = dtype, .rows = rows, .cols = shape.back()};
}

std::span<float> Parameter::f32() const {
  if (dtype != kernels::DType::f32) {
    throw core::Error(core::Code::unsupported,
                      fmt::format("its type is {}, not f32", kernels::info(dtype).name))
        .in(name);
  }
  return {static_cast<float*>(data), static_cast<std::size_t>(elements)};
}

// Arrange matrices of blocks in panels.
namespace {

/// Points every matrix of blocks at its panels, which lie one after the other in the tensor returned.
at::Tensor arrange(std::span<kernels::MatrixView* const> matrices) {
  constexpr std::size_t line = 64, page = std::size_t{2} << 20;
  const auto size = [](const kernels::MatrixView& w) {
    return (kernels::panel_bytes(w) + line - 1) / line * line;
  };
  std::size_t total = 0;
  for (const kernels::MatrixView* w : matrices) total += size(*w);
  if (total == 0) return {};
  at::Tensor storage = at::empty({static_cast<std::int64_t>(total + page)}, at::kByte);
  auto* panels = static_cast<std::byte*>(storage.data_ptr());
  panels += (page - reinterpret_cast<std::uintptr_t>(panels) % page) % page;
#ifdef MADV_HUGEPAGE
  static_cast<void>(
      ::madvise(panels, total, MADV_HUGEPAGE));  // a wish; without it all works, slower
#endif
  for (kernels::MatrixView* w : matrices) {
    if (size(*w) == 0) continue;
    kernels::make_panels(*w, panels, core::default_pool());
    w->panels = panels;
    panels += size(*w);
  }
  return storage;
}

}  // namespace

// Collect the tensors, then point every layer at its own.
class WeightBuilder {
 public:
  explicit WeightBuilder(const Config& config) : set_(std::make_shared<WeightSet>()) {
    set_->config_ = config;
  }

  /// Takes a tensor over: the at::Tensor owns, or keeps alive, the memory.
  void add(const ExpectedTensor& expected, kernels::DType dtype, at::Tensor storage) {
    std::int64_t elements = 1;
    for (const std::int64_t n : expected.shape) elements *= n;
    set_->parameters_.push_back({.name = expected.name,
                                 .dtype = dtype,
                                 .shape = expected.shape,
                                 .data = storage.data_ptr(),
                                 .elements = elements});
    set_->owners_.push_back(std::make_shared<at::Tensor>(std::move(storage)));
  }

  /// A matrix that the file has in few bits only, `bytes` of them.
  void add_packed(const ExpectedTensor& expected,
                  std::shared_ptr<const kernels::PackedMatrix> packed, std::size_t bytes) {
    set_->parameters_.push_back({.name = expected.name,
                                 .dtype = kernels::DType::bf16,
                                 .shape = expected.shape,
                                 .elements = expected.shape[0] * expected.shape[1],
                                 .packed = std::move(packed)});
    set_->packed_bytes_ += static_cast<std::int64_t>(bytes);
    set_->plain_ = false;
  }

  at::Tensor add_f32(const ExpectedTensor& expected) {
    at::Tensor storage = at::empty(expected.shape, at::kFloat);
    add(expected, kernels::DType::f32, storage);
    return storage;
  }

  const Parameter& last() const { return set_->parameters_.back(); }

  std::shared_ptr<WeightSet> finish(std::string quantization = {}) {
    WeightSet& set = *set_;
    set.quantization_ = std::move(quantization);
    const auto find = [&](const std::string& name) -> const Parameter* {
      const auto it = std::ranges::find(set.parameters_, name, &Parameter::name);
      return it == set.parameters_.end() ? nullptr : &*it;
    };
    const auto matrix = [&](const std::string& name) {
      const Parameter* p = find(name + ".weight");
      return p == nullptr ? kernels::MatrixView{} : p->view();
    };
    const auto vector = [&](const std::string& name) {
      const Parameter* p = find(name);
      return p == nullptr ? nullptr : static_cast<const float*>(p->data);
    };
    const auto packed = [&](const std::string& name) {
      const Parameter* p = find(name + ".weight");
      return p == nullptr ? nullptr : p->packed.get();
    };
    set.embed_ = matrix("embed");
    set.pos_embed_ = matrix("pos_embed");
    for (std::int64_t i = 0; i < set.config_.layers; ++i) {
      const std::string at = fmt::format("layers.{}.", i);
      set.layers_.push_back({
          .attn_norm = vector(at + "attn_norm.weight"),
          .attn_norm_bias = vector(at + "attn_norm.bias"),
          .q = matrix(at + "attn.q"),
          .k = matrix(at + "attn.k"),
          .v = matrix(at + "attn.v"),
          .o = matrix(at + "attn.o"),
          .q_bias = vector(at + "attn.q.bias"),
          .k_bias = vector(at + "attn.k.bias"),
          .v_bias = vector(at + "attn.v.bias"),
          .o_bias = vector(at + "attn.o.bias"),
          .q_norm = vector(at + "attn.q_norm.weight"),
          .k_norm = vector(at + "attn.k_norm.weight"),
          .ffn_norm = vector(at + "ffn_norm.weight"),
          .ffn_norm_bias = vector(at + "ffn_norm.bias"),
          .gate = matrix(at + "ffn.gate"),
          .up = matrix(at + "ffn.up"),
          .down = matrix(at + "ffn.down"),
          .gate_bias = vector(at + "ffn.gate.bias"),
          .up_bias = vector(at + "ffn.up.bias"),
          .down_bias = vector(at + "ffn.down.bias"),
          .packed = {packed(at + "attn.q"), packed(at + "attn.k"), packed(at + "attn.v"),
                     packed(at + "attn.o"), packed(at + "ffn.gate"), packed(at + "ffn.up"),
                     packed(at + "ffn.down")},
      });
    }
    set.norm_ = vector("norm.weight");
    set.norm_bias_ = vector("norm.bias");
    set.head_ = set.config_.tied_head ? set.embed_ : matrix("head");
    std::vector<kernels::MatrixView*> matrices;
    for (LayerWeights& layer : set.layers_) {
      matrices.insert(matrices.end(), {&layer.q, &layer.k, &layer.v, &layer.o, &layer.up,
                                       &layer.gate, &layer.down});
    }
    matrices.push_back(&set.head_);
    set.owners_.push_back(std::make_shared<at::Tensor>(arrange(matrices)));
    return std::move(set_);
  }

 private:
  std::shared_ptr<WeightSet> set_;
};

// Use a checkpoint's matrices where they lie, and widen its vectors.
std::shared_ptr<const WeightSet> load_weights(const Checkpoint& checkpoint) {
  const auto where = checkpoint.path.string();
  WeightBuilder builder(checkpoint.config);
  const std::vector<ExpectedTensor> expected = expected_tensors(checkpoint.config);
  for (const ExpectedTensor& want : expected) {
    const TensorInfo* have = checkpoint.find(want.name);
    if (have == nullptr) {
      throw core::Error(core::Code::corrupt, fmt::format("tensor {} is missing", want.name))
          .in(where);
    }
    if (have->shape != want.shape) {
      throw core::Error(
          core::Code::corrupt,
          fmt::format("tensor {} is [{}] where the configuration implies [{}]", want.name,
                      fmt::join(have->shape, ", "), fmt::join(want.shape, ", ")))
          .in(where);
    }
    if (have->packed != nullptr) {
      builder.add_packed(want, have->packed, have->bytes);
      continue;
    }
    const auto element = static_cast<std::uintptr_t>(have->dtype == kernels::DType::f32 ? 4 : 2);
    const bool aligned = reinterpret_cast<std::uintptr_t>(have->data) % element == 0;
    if (want.shape.size() == 1) {  // norms and biases: always fp32
      kernels::dequantize_row(have->dtype, have->data, builder.add_f32(want).data_ptr<float>(),
                              want.shape[0]);
    } else if (aligned) {
      void* data = const_cast<std::byte*>(have->data);  // at::from_blob wants it so; nobody writes
      builder.add(want, have->dtype,
                  at::from_blob(
                      data, {static_cast<std::int64_t>(have->bytes)},
                      [owner = have->owner](void*) {}, at::kByte));
    } else {
      at::Tensor copy = at::empty({static_cast<std::int64_t>(have->bytes)}, at::kByte);
      std::copy_n(have->data, have->bytes, static_cast<std::byte*>(copy.data_ptr()));
      builder.add(want, have->dtype, std::move(copy));
    }
  }
  for (const TensorInfo& have : checkpoint.tensors) {
    if (std::ranges::find(expected, have.name, &ExpectedTensor::name) == expected.end()) {
      throw core::Error(core::Code::corrupt,
                        fmt::format("tensor {} belongs to no part of this model", have.name))
          .in(where);
    }
  }
  return builder.finish(checkpoint.quantization);
}

// Draw fresh weights to train.
std::shared_ptr<WeightSet> random_weights(const Config& config, std::uint64_t seed) {
  validate(config);
  WeightBuilder builder(config);
  const float residual = 0.02f / std::sqrt(2.0f * static_cast<float>(config.layers));
  std::uint64_t stream = 0;
  for (const ExpectedTensor& want : expected_tensors(config)) {
    float* data = builder.add_f32(want).data_ptr<float>();
    const std::int64_t n = builder.last().elements;
    core::Rng rng(seed, stream++);  // one stream per tensor: adding one does not change the others
    if (want.shape.size() == 2) {
      const bool into_residual =
          want.name.ends_with("attn.o.weight") || want.name.ends_with("ffn.down.weight");
      for (std::int64_t i = 0; i < n; ++i)
        data[i] = rng.normal() * (into_residual ? residual : 0.02f);
    } else {
      std::fill_n(data, n, want.name.ends_with("norm.weight") ? 1.0f : 0.0f);
    }
  }
  return builder.finish();
}

// Find and measure.
const Parameter& WeightSet::parameter(std::string_view name) const {
  const auto it = std::ranges::find(parameters_, name, &Parameter::name);
  if (it == parameters_.end()) {
    throw core::Error(core::Code::not_found, "the model has no tensor of this name")
        .in(std::string(name));
  }
  return *it;
}

std::int64_t WeightSet::parameter_count() const {
  std::int64_t total = 0;
  for (const Parameter& p : parameters_) total += p.elements;
  return total;
}

void require_same_packing(const WeightSet& before, const WeightSet& after) {
  if (before.quantization() == after.quantization() && before.plain() == after.plain()) return;
  const auto kind = [](const WeightSet& w) {
    return w.quantization().empty() ? std::string("not packed") : w.quantization();
  };
  throw core::Error(core::Code::invalid_argument,
                    fmt::format("the new weights are {}, the old {}", kind(after), kind(before)))
      .in("weights");
}

std::int64_t WeightSet::bytes() const {
  std::size_t total = 0;
  for (const Parameter& p : parameters_)
    if (p.data != nullptr) total += p.view().bytes();
  return static_cast<std::int64_t>(total) + packed_bytes_;
}

}  // namespace rose::model
