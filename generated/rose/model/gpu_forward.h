// Run the model forward on a GPU.

#pragma once

#include <cstddef>
#include <cstdint>

#include "rose/kernels/gpu/attention.h"
#include "rose/kernels/gpu/buffer.h"
#include "rose/kernels/gpu/linear.h"
#include "rose/kernels/kv_cache.h"
#include "rose/model/gpu_weights.h"

namespace rose::model {

class GpuAdapters;  // rose/model/gpu_adapters.h

/// T tokens of S sequences, packed; all pointers are to device memory but `plan`, `kv` and `adapters`.
struct GpuBatch {
  std::int64_t tokens = 0;                   ///< T
  const std::int32_t* ids = nullptr;         ///< [T]
  const std::int32_t* positions = nullptr;   ///< [T], absolute
  const kernels::KvPlace* places = nullptr;  ///< [T]; needed with a cache
  const std::int32_t* logit_tokens =
      nullptr;  ///< [R]: which tokens' hidden states are wanted; null: all
  const kernels::gpu::AttentionPlan* plan = nullptr;  ///< made for this batch's lengths
  kernels::gpu::Workspace attention = {};             ///< with the plan uploaded to its front
  const kernels::KvView* kv = nullptr;    ///< null: causal within each packed row, nothing is kept
  std::int32_t* fault = nullptr;          ///< set to 1 when a page table points outside the cache
  const GpuAdapters* adapters = nullptr;  ///< null: the model as it is; else, in device memory,
  const std::int32_t* adapter_offsets = nullptr;  ///< [slots + 1]: which tokens have which adapter
};

/// Buffers and plans that a pass on a GPU reuses: for at most `tokens` tokens, and hidden states of at most `rows`.
class GpuWorkspace {
 public:
  /// With `measured`, products are planned by timing every candidate when a number of rows is first seen, which takes a
  /// fraction of a second and allocates; else by rules. Without `laws`, as the library would: see LinearPlans. `dtype` is the weights'.
  GpuWorkspace(const Config& config, std::int64_t tokens, std::int64_t rows, bool measured = false,
               bool laws = true, kernels::DType dtype = kernels::DType::bf16);
  GpuWorkspace(const GpuWorkspace&) = delete;
  GpuWorkspace& operator=(const GpuWorkspace&) = delete;

  static std::size_t bytes(const Config& config, std::int64_t tokens, std::int64_t rows,
                           kernels::DType dtype = kernels::DType::bf16);
  std::int64_t tokens() const { return tokens_; }
  std::int64_t rows() const { return rows_; }
  kernels::DType dtype() const { return dtype_; }

  /// Plans for m rows of every product of the model, and for its head. What is planned before a graph is captured is not
  /// planned while it is.
  void plan(std::int64_t m);
  void plan_head(std::int64_t rows);

  std::byte *x = nullptr, *y = nullptr, *normed = nullptr;  // [T, C]
  std::byte* other_x = nullptr;                             // [2, C]: the stream, every other time
  std::byte *qkv = nullptr, *attended = nullptr;            // [T, (H + 2G) D], [T, H D]
  std::byte* activated = nullptr;                           // [T, F]
  std::byte *last_x = nullptr, *last_y = nullptr;           // [R, C]
  float *cos = nullptr, *sin = nullptr, *inv_freq = nullptr;
  float rope_scale = 1;
  kernels::gpu::Workspace linear = {};
  kernels::gpu::LinearPlans plans;

 private:
  Config config_;
  std::int64_t tokens_, rows_;
  kernels::DType dtype_;
  kernels::gpu::Buffer memory_;
};

/// model::run_forward on a GPU. hidden is [R, C], after the final norm: of the tokens that logit_tokens names, or of all T.
/// Enqueues and returns. Each row's bits depend on its own sequence alone.
void forward(const GpuWeights& weights, const GpuBatch& batch, GpuWorkspace& workspace,
             const kernels::gpu::Matrix& hidden, kernels::gpu::Stream stream);

/// Logits of hidden rows: out [R, V] f32, never rounded.
void logits(const GpuWeights& weights, const kernels::gpu::Matrix& hidden_rows,
            GpuWorkspace& workspace, const kernels::gpu::Matrix& out, kernels::gpu::Stream stream);

/// How attention over this model's heads is to be planned.
kernels::AttentionShape attention_shape(const Config& config);

}  // namespace rose::model
