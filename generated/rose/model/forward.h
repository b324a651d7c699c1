// Run the model forward.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "rose/core/parallel.h"
#include "rose/kernels/kv_view.h"
#include "rose/model/weights.h"

namespace rose::kernels {
struct Dropout;  // rose/kernels/dropout.h
}

namespace rose::model {

struct Adapter;  // rose/model/adapter.h

/// S sequences packed one after another, T tokens in all. positions[i] is absolute.
struct Batch {
  std::span<const std::int32_t> ids;          ///< [T]
  std::span<const std::int32_t> positions;    ///< [T], consecutive within a row
  std::span<const std::int32_t> row_offsets;  ///< [S + 1], from 0 to T, ascending
  std::span<const Adapter* const>
      adapters{};  ///< [S], null entries: the model as it is; empty: all
  const kernels::Dropout* adapter_dropout =
      nullptr;  ///< of a training pass: what is left out before the adapters; null: nothing
};

/// What one block's backward pass needs. T tokens, C hidden, H query heads, G key-value heads, D head dim, F ffn.
struct SavedLayer {
  std::span<float> input;           ///< [T, C] residual stream entering the block
  std::span<float> attn_norm_mean;  ///< [T] layernorm only
  std::span<float> attn_norm_inv;   ///< [T] 1/std or 1/rms
  std::span<float> attn_normed;     ///< [T, C] input of the q, k, v projections
  std::span<float> q_raw, k_raw;    ///< [T, H, D], [T, G, D] before QK-norm; only with qk_norm
  std::span<float> q_inv, k_inv;    ///< [T, H], [T, G] 1/rms of QK-norm; only with qk_norm
  std::span<float> q, k,
      v;  ///< [T, H, D], [T, G, D] twice, as attention saw them (after norm and RoPE)
  std::span<float> lse;            ///< [T, H] log-sum-exp of the scaled scores
  std::span<float> attn_out;       ///< [T, H * D] input of the o projection
  std::span<float> middle;         ///< [T, C] residual stream between attention and feed-forward
  std::span<float> ffn_norm_mean;  ///< [T] layernorm only
  std::span<float> ffn_norm_inv;   ///< [T]
  std::span<float> ffn_normed;     ///< [T, C] input of gate and up
  std::span<float> gate;           ///< [T, F] gate's pre-activation; empty without a gate
  std::span<float> up;             ///< [T, F] up's output (GPT-2: the pre-activation)
  std::span<float> activated;      ///< [T, F] input of down
};

/// Activations of one forward pass without a cache, laid out for the backward pass. Reused: buffers only grow.
struct Saved {
  std::int64_t tokens = 0;
  std::vector<SavedLayer> layers;
  std::span<float> final_input;         ///< [T, C] residual stream entering the final norm
  std::span<float> final_mean;          ///< [T] layernorm only
  std::span<float> final_inv;           ///< [T]
  std::span<float> rope_cos, rope_sin;  ///< [T, D/2]; empty with learned positions

  Saved() = default;
  Saved(Saved&&) = default;
  Saved& operator=(Saved&&) = default;
  Saved(const Saved&) = delete;  // the spans point into the buffer
  Saved& operator=(const Saved&) = delete;
  void reserve(const Config& config,
               std::int64_t tokens);  ///< called by forward; allocates only when it grows

 private:
  std::vector<float> buffer_;
};

/// Buffers that a forward pass reuses. After reserve(tokens, rows) no call that fits allocates.
class Workspace {
 public:
  explicit Workspace(const Config& config, core::ThreadPool& pool = core::default_pool());
  Workspace(const Workspace&) = delete;  // the spans point into the buffer
  Workspace& operator=(const Workspace&) = delete;
  void reserve(std::int64_t tokens);
  core::ThreadPool& pool() const { return *pool_; }

  std::span<float> x, normed, q, k, v, attn_out, projected, gate, up;  // sized by reserve
  std::span<float> rope_cos, rope_sin;
  std::vector<float> adapted, thinned;  ///< grow when a batch has adapters
  std::function<void(int layer)>
      on_keys;  ///< called when a layer's keys and values are in the cache
  std::span<const float> inv_freq() const { return inv_freq_; }
  float rope_scale() const { return rope_scale_; }

 private:
  Config config_;
  core::ThreadPool* pool_;
  std::vector<float> inv_freq_, buffer_;
  float rope_scale_ = 1.0f;
  std::int64_t tokens_ = 0;
};

/// The forward pass, the only one: trainer and engine call it. hidden is [T, C], after the final norm.
/// With kv, each row's keys are appended at its positions and its queries attend to all cached keys before and
/// including their own (row s uses row s of the page table). Without kv, attention is causal within each row.
/// saved, when not null, receives what backward needs (kv must then be null).
void forward(const WeightSet& weights, const Batch& batch, const kernels::KvView* kv, Saved* saved,
             Workspace& workspace, std::span<float> hidden);

/// Logits of some hidden rows: out [R, V] = hidden_rows [R, C] times the head's transpose, fp32, never rounded.
void logits(const WeightSet& weights, std::span<const float> hidden_rows, std::int64_t rows,
            Workspace& workspace, std::span<float> out);

/// RoPE's frequencies after the configuration's scaling, and what cos and sin are multiplied with.
struct RopeSetup {
  std::vector<float> inv_freq;
  float scale = 1.0f;
};
RopeSetup rope_setup(const Config& config);

}  // namespace rose::model
