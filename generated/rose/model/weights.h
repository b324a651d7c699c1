// Hold a model's weights, named and shaped.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rose/kernels/view.h"
#include "rose/model/files/config.h"

namespace rose::kernels {
struct PackedMatrix;  // rose/kernels/packed.h
}

namespace rose::model {

struct Checkpoint;  // rose/model/files/checkpoint.h

/// One named tensor of a model. A matrix is [rows, cols]; a vector has rows = 1.
struct Parameter {
  std::string name;  ///< canonical: "layers.3.attn.q.weight"
  kernels::DType dtype = kernels::DType::f32;
  std::vector<std::int64_t> shape;  ///< [out, in] or [n]
  void* data = nullptr;             ///< never written unless the set was made to be trained
  std::int64_t elements = 0;
  std::shared_ptr<const kernels::PackedMatrix>
      packed{};  ///< the same in few bits, or null; then `data` may be null

  kernels::MatrixView view() const;
  std::span<float> f32() const;  ///< throws core::Error unless dtype is f32
};

/// The weights of one block; a null pointer or an empty view means that the family has no such weight.
struct LayerWeights {
  const float *attn_norm = nullptr, *attn_norm_bias = nullptr;  // [C]
  kernels::MatrixView q{}, k{}, v{}, o{};  // [H*D, C], [Hkv*D, C] twice, [C, H*D]
  const float *q_bias = nullptr, *k_bias = nullptr, *v_bias = nullptr, *o_bias = nullptr;
  const float *q_norm = nullptr, *k_norm = nullptr;           // [D]
  const float *ffn_norm = nullptr, *ffn_norm_bias = nullptr;  // [C]
  kernels::MatrixView gate{}, up{}, down{};  // [F, C] twice, [C, F]; no gate in GPT-2
  const float *gate_bias = nullptr, *up_bias = nullptr, *down_bias = nullptr;

  /// The same matrices in few bits, where they are packed.
  struct Packed {
    const kernels::PackedMatrix *q = nullptr, *k = nullptr, *v = nullptr, *o = nullptr;
    const kernels::PackedMatrix *gate = nullptr, *up = nullptr, *down = nullptr;
  } packed{};
};

/// A model's weights: immutable once shared, with a version that prefix keys and RL carry.
/// Storages are at::Tensor's (kept alive here); memory-mapped weights keep their file open.
class WeightSet {
 public:
  const Config& config() const { return config_; }
  std::uint64_t version() const { return version_; }
  void set_version(std::uint64_t version) { version_ = version; }

  const kernels::MatrixView& embed() const { return embed_; }  ///< [V, C]
  const kernels::MatrixView& pos_embed() const {
    return pos_embed_;
  }  ///< [max_positions, C], GPT-2 only
  std::span<const LayerWeights> layers() const { return layers_; }
  const float* norm() const { return norm_; }
  const float* norm_bias() const { return norm_bias_; }
  const kernels::MatrixView& head() const { return head_; }  ///< [V, C]; the embedding when tied

  /// Every tensor once, in canonical order; a tied head is not listed.
  std::span<const Parameter> parameters() const { return parameters_; }
  const Parameter& parameter(std::string_view name) const;  ///< throws core::Error (not_found)
  std::int64_t parameter_count() const;
  std::int64_t bytes() const;  ///< of all storages

  /// What its matrices are packed as: "int4 in groups of 128"; empty: as nothing.
  const std::string& quantization() const { return quantization_; }
  bool plain() const { return plain_; }  ///< whether every matrix has a form that a CPU multiplies

 private:
  friend class WeightBuilder;
  friend class WeightPacker;  // rose/model/packed_weights.cpp
  std::string quantization_;
  bool plain_ = true;
  std::int64_t packed_bytes_ = 0;
  Config config_{};
  std::uint64_t version_ = 0;
  kernels::MatrixView embed_{}, pos_embed_{}, head_{};
  std::vector<LayerWeights> layers_;
  const float *norm_ = nullptr, *norm_bias_ = nullptr;
  std::vector<Parameter> parameters_;
  std::vector<std::shared_ptr<void>> owners_;  // at::Tensor's, or what keeps a mapping open
};

/// Weights of a checkpoint, without copying what can be used in place (matrices stay in their file type, mapped).
/// Norms and biases become fp32. A missing, surplus or mis-shaped tensor is one core::Error that names it.
std::shared_ptr<const WeightSet> load_weights(const Checkpoint& checkpoint);

/// Throws core::Error (invalid_argument) unless both are packed alike: an engine does not change its arithmetic unasked.
void require_same_packing(const WeightSet& before, const WeightSet& after);

/// Fresh fp32 weights to train: N(0, 0.02), residual outputs scaled by 1/sqrt(2 layers), norms 1, biases 0.
std::shared_ptr<WeightSet> random_weights(const Config& config, std::uint64_t seed);

}  // namespace rose::model
