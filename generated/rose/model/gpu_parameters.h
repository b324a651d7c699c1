// Keep the parameters of a model that is trained on a GPU.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rose/core/parallel.h"
#include "rose/kernels/gpu/buffer.h"
#include "rose/kernels/gpu/flat_step.h"
#include "rose/kernels/gpu/stream.h"
#include "rose/model/weights.h"

namespace rose::model {

// Name every matrix and vector of a model in device memory.

/// A matrix without memory where the family has none. Queries, keys and values are one matrix, gate and up another.
struct GpuTensors {
  struct Layer {
    kernels::gpu::Matrix attn_norm{}, attn_norm_bias{}, qkv{}, qkv_bias{}, q_norm{}, k_norm{}, o{},
        o_bias{};
    kernels::gpu::Matrix ffn_norm{}, ffn_norm_bias{}, up{}, up_bias{}, down{}, down_bias{};
  };
  kernels::gpu::Matrix embed{}, pos_embed{}, norm{}, norm_bias{};
  kernels::gpu::Matrix head{};  ///< the embedding when tied; rows as FlatLayout::padded_vocab says
  std::vector<Layer> layers;
};

// Lay all parameters out in one array.

/// Where a tensor of WeightSet::parameters() lies.
struct FlatTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t first = 0, elements = 0;
  std::int64_t norm = -1;  ///< where it lies among the norms' vectors alone; negative: it is none
};

/// Tensors begin at multiples of 64 elements, packed ones lie together; the gaps are zero and stay zero.
class FlatLayout {
 public:
  explicit FlatLayout(const Config& config);

  const Config& config() const { return config_; }
  std::span<const FlatTensor> tensors() const { return tensors_; }  ///< in canonical order
  std::int64_t size() const { return size_; }                       ///< elements, gaps included
  /// Rows of the embedding and the head: the vocabulary, rounded up to a multiple of 64. The rows beyond are zero.
  std::int64_t padded_vocab() const;

  /// Views into an array: matrices and biases at `values`, the norms' vectors at `norms`, which is f32.
  GpuTensors views(void* values, kernels::DType dtype, float* norms) const;
  /// The same where the norms' vectors lie one after the other, norm_elements() numbers.
  GpuTensors frozen_views(void* values, kernels::DType dtype, float* norms) const;
  std::int64_t norm_elements() const { return norms_; }
  /// No gradients: norms alone have a place for theirs, which they share, and which nobody reads.
  GpuTensors no_slopes(float* place) const;

  /// The blocks of all tensors in canonical order; `group` is asked for each tensor, a negative one leaves it out.
  std::vector<kernels::gpu::FlatBlock> blocks(
      const std::function<int(const FlatTensor&)>& group) const;

 private:
  Config config_;
  std::vector<FlatTensor> tensors_;
  std::int64_t size_ = 0, norms_ = 0;
};

// Masters, copy, gradients.
class GpuParameters {
 public:
  /// Uploads. `dtype` is what passes compute in: bf16, or f32, which needs no copy. Throws core::Error.
  GpuParameters(const WeightSet& weights, kernels::DType dtype, bool frozen = false);

  static std::size_t bytes(const Config& config, kernels::DType dtype, bool frozen = false);

  const FlatLayout& layout() const { return layout_; }
  const Config& config() const { return layout_.config(); }
  kernels::DType dtype() const { return dtype_; }
  bool frozen() const { return frozen_; }  ///< then the next three, and what writes, are not there
  float* masters() const { return memory_.as<float>(); }
  float* gradients() const { return memory_.as<float>() + layout_.size(); }
  void* copy() const;  ///< null in f32
  const GpuTensors& weights() const { return weights_; }
  const GpuTensors& slopes() const { return slopes_; }  ///< of gradients, f32

  /// Writes the masters' values of a tensor, or reads them. Waits.
  void upload(const FlatTensor& tensor, std::span<const float> values);
  void download(const FlatTensor& tensor, std::span<float> values) const;
  void download_gradient(const FlatTensor& tensor, std::span<float> values) const;
  /// The copy becomes the masters, rounded. Enqueues.
  void refresh(kernels::gpu::Stream stream) const;

 private:
  void fill(const WeightSet& weights);
  void place_frozen(const FlatTensor& tensor, std::span<const float> values);

  FlatLayout layout_;
  kernels::DType dtype_;
  bool frozen_;
  kernels::gpu::Buffer
      memory_;  // masters, gradients, copy; frozen: copy, norms, one norm's gradient
  GpuTensors weights_, slopes_;
};

}  // namespace rose::model
