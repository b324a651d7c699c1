// Gradients of the loss with respect to every weight.

#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "rose/model/forward.h"
#include "rose/model/weights.h"

namespace rose::model {

// One flat array, with a window per weight.
class Gradients {
 public:
  /// The windows of one block; empty where the family has no such weight.
  struct Layer {
    std::span<float> attn_norm, attn_norm_bias, q, k, v, o, q_bias, k_bias, v_bias, o_bias, q_norm,
        k_norm;
    std::span<float> ffn_norm, ffn_norm_bias, gate, up, down, gate_bias, up_bias, down_bias;
  };

  explicit Gradients(const WeightSet& weights);  ///< zeros
  /// Of the wanted parameters alone; the windows of all others are empty, and backward leaves them out.
  Gradients(const WeightSet& weights, const std::function<bool(const Parameter&)>& wanted);
  Gradients(const Gradients&) = delete;  // the windows point into the array
  Gradients& operator=(const Gradients&) = delete;

  void zero();
  std::span<float> all() { return all_; }
  /// The gradient of WeightSet::parameters()[index], in the same layout.
  std::span<float> parameter(std::size_t index) const { return windows_[index].values; }
  /// By canonical name; empty when there is no such parameter.
  std::span<float> find(std::string_view name) const;
  const Layer& layer(std::size_t index) const { return layers_[index]; }

  std::span<float> embed, pos_embed, norm, norm_bias;
  std::span<float> head;  ///< the embedding's window when the head is tied to it

 private:
  struct Window {
    std::string_view name;  // lives in the weight set
    std::span<float> values;
  };
  std::vector<float> all_;
  std::vector<Window> windows_;
  std::vector<Layer> layers_;
};

// The temporaries of one branch.
class BackwardWorkspace {
 public:
  explicit BackwardWorkspace(const Config& config, core::ThreadPool& pool = core::default_pool())
      : config_(config), pool_(&pool) {}
  BackwardWorkspace(const BackwardWorkspace&) = delete;  // the spans point into the buffer
  BackwardWorkspace& operator=(const BackwardWorkspace&) = delete;

  /// Makes room for batches of this many tokens; called by backward, allocates only when it grows.
  void reserve(std::int64_t tokens);
  core::ThreadPool& pool() const { return *pool_; }

  std::span<float> dx, d_normed;        ///< [T, C]
  std::span<float> d_attn, dq, dk, dv;  ///< [T, H*D] twice, [T, G*D] twice
  std::span<float> d_gate, d_up;        ///< [T, F]
  std::span<float> turn_back;           ///< [T, D/2] sines, negated
  std::vector<float> scratch;

 private:
  Config config_;
  core::ThreadPool* pool_;
  std::vector<float> buffer_;
};

/// Back through the head: logits = hidden_rows * head^T. d_logits [R, V] -> d_hidden_rows [R, C]
/// (overwritten), and the head's gradient is added into `gradients` (the embedding's when tied).
void head_backward(const WeightSet& weights, std::span<const float> hidden_rows, std::int64_t rows,
                   std::span<const float> d_logits, std::span<float> d_hidden_rows,
                   Gradients& gradients, BackwardWorkspace& workspace);

/// Back through `forward`: d_hidden [T, C] is the loss's derivative with respect to its output.
/// Adds every weight's gradient into `gradients`. `saved` is of the same batch and weights.
/// The same bits for any number of threads. Throws core::Error (unsupported) unless weights are fp32.
void backward(const WeightSet& weights, const Batch& batch, const Saved& saved,
              std::span<const float> d_hidden, Gradients& gradients, BackwardWorkspace& workspace);

}  // namespace rose::model
