// Hold a model's weights on a GPU.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rose/core/parallel.h"
#include "rose/kernels/gpu/buffer.h"
#include "rose/kernels/gpu/linear_packed.h"
#include "rose/kernels/gpu/stream.h"
#include "rose/model/weights.h"

namespace rose::model {

/// The weights of one block, in device memory; an empty matrix or a null bias means that the family has no such weight.
struct GpuLayer {
  kernels::gpu::Matrix attn_norm{}, attn_norm_bias{}, ffn_norm{}, ffn_norm_bias{};  // [1, C] f32
  kernels::gpu::Matrix qkv{};               // [(H + 2G) D, C]: queries, keys, values
  kernels::gpu::Matrix o{};                 // [C, H D]
  kernels::gpu::Matrix q_norm{}, k_norm{};  // [1, D] f32
  kernels::gpu::Matrix up{};                // [2F, C]: gate, then up; without a gate [F, C]
  kernels::gpu::Matrix down{};              // [C, F]
  /// The same matrices in few bits; where one has rows, the one above is empty.
  kernels::gpu::PackedWeight packed_qkv{}, packed_o{}, packed_up{}, packed_down{};
  const void *qkv_bias = nullptr, *o_bias = nullptr, *up_bias = nullptr, *down_bias = nullptr;
};

/// Whether there are GPU kernels for such a model in bf16, f16 or f32. Throws core::Error (unsupported) that names what has none.
void check_gpu_model(const Config& config, kernels::DType dtype);

/// A model's weights in one piece of device memory: matrices and biases in one type, norms in f32. Matrices of the blocks that are packed
/// stay so, if all that lie together are packed alike; their type is bf16.
class GpuWeights {
 public:
  /// Converts and uploads. Throws core::Error: unsupported (check_gpu_model; a build without CUDA), resource_exhausted.
  explicit GpuWeights(const WeightSet& weights, kernels::DType dtype = kernels::DType::bf16,
                      core::ThreadPool& pool = core::default_pool());

  /// Overwrites the values and keeps the addresses, which captured graphs hold. Configuration and packing must be the same.
  void assign(const WeightSet& weights, core::ThreadPool& pool = core::default_pool());

  /// Of device memory; without weights, when nothing is packed.
  static std::size_t bytes(const Config& config, kernels::DType dtype = kernels::DType::bf16);
  static std::size_t bytes(const WeightSet& weights, kernels::DType dtype = kernels::DType::bf16);

  const Config& config() const { return config_; }
  std::uint64_t version() const { return version_; }
  kernels::DType dtype() const { return dtype_; }  ///< of matrices, biases, and what passes between
  std::span<const GpuLayer> layers() const { return layers_; }
  const kernels::gpu::Matrix& embed() const { return embed_; }          ///< [V, C]
  const kernels::gpu::Matrix& pos_embed() const { return pos_embed_; }  ///< GPT-2 only
  const kernels::gpu::Matrix& norm() const { return norm_; }            ///< [1, C] f32
  const kernels::gpu::Matrix& norm_bias() const { return norm_bias_; }
  const kernels::gpu::Matrix& head() const { return head_; }  ///< [V, C]; the embedding when tied
  bool packed() const { return packed_; }                     ///< whether some matrix is

 private:
  Config config_{};
  kernels::DType dtype_;
  std::uint64_t version_ = 0;
  bool packed_ = false;
  std::size_t bytes_ = 0;
  kernels::gpu::Buffer memory_;
  kernels::gpu::Matrix embed_{}, pos_embed_{}, norm_{}, norm_bias_{}, head_{};
  std::vector<GpuLayer> layers_;
};

}  // namespace rose::model
