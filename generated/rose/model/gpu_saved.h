// Lay out what a training step on a GPU keeps.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rose/kernels/gpu/buffer.h"
#include "rose/kernels/gpu/stream.h"
#include "rose/model/files/config.h"

namespace rose::model {

/// What the backward pass computes again instead of finding it in memory. The bits of the gradients do not depend on it.
enum class Recompute : std::uint8_t {
  nothing,    ///< all activations are kept
  selective,  ///< norms, rotations and activation functions: little work, half of the bytes
  blocks      ///< whole blocks from their input: a third more work, a fraction of the bytes
};

struct GpuTrainingShape {
  std::int64_t tokens = 0;     ///< of the largest micro-batch
  std::int64_t head_rows = 0;  ///< logits that exist at a time are of so many tokens
  kernels::DType dtype = kernels::DType::bf16;
  Recompute recompute = Recompute::selective;
};

// What one block leaves behind.

/// T tokens; activations are of the pass's type, statistics f32. Matrices may be shared by all blocks where they are recomputed.
struct GpuSavedLayer {
  kernels::gpu::Matrix input{};     ///< [T, C] the stream
  kernels::gpu::Matrix normed{};    ///< [T, C]
  kernels::gpu::Matrix qkv{};       ///< [T, (H + 2G) D]; turned in place without QK-norm
  kernels::gpu::Matrix turned{};    ///< [T, (H + G) D] queries and keys after QK-norm and rotation
  kernels::gpu::Matrix attended{};  ///< [T, H D]
  kernels::gpu::Matrix middle{};    ///< [T, C] the stream between attention and feed-forward
  kernels::gpu::Matrix ffn_normed{};  ///< [T, C]
  kernels::gpu::Matrix up{};          ///< [T, 2F] gate and up; without a gate [T, F]
  kernels::gpu::Matrix activated{};   ///< [T, F]
  float *mean = nullptr, *inv = nullptr, *ffn_mean = nullptr, *ffn_inv = nullptr;  ///< [T]
  float *q_inv = nullptr, *k_inv = nullptr;  ///< [T, H], [T, G]
  float* lse = nullptr;                      ///< [T, H]
};

// Everything between the two passes, in one piece of memory.
class GpuSaved {
 public:
  GpuSaved(const Config& config, const GpuTrainingShape& shape);

  /// What the constructor allocates, to the byte.
  static std::size_t bytes(const Config& config, const GpuTrainingShape& shape);

  const GpuTrainingShape& shape() const { return shape_; }

  std::vector<GpuSavedLayer> layers;
  kernels::gpu::Matrix final_input{}, hidden{};  ///< [T, C]; the gradient of hidden takes its place
  float *final_mean = nullptr, *final_inv = nullptr;
  float *cos = nullptr, *sin = nullptr, *inv_freq = nullptr;
  kernels::gpu::Matrix change{};             ///< [T, max(C, H D)] y forward, d_attended backward
  kernels::gpu::Matrix d_stream{}, d_qkv{};  ///< [T, C], [T, (H + 2G) D]
  kernels::gpu::Matrix logits{};             ///< [R, padded V] f32
  kernels::gpu::Matrix d_logits{};           ///< [R, padded V]; in f32 the logits' memory
  float *losses = nullptr, *lse = nullptr;   ///< [T]
  std::int32_t *ids = nullptr, *positions = nullptr, *targets = nullptr;  ///< [T]
  float* weights = nullptr;                                               ///< [T]

 private:
  GpuTrainingShape shape_;
  kernels::gpu::Buffer memory_;
};

}  // namespace rose::model
