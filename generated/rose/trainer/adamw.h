// AdamW over all weights of a model.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rose/core/parallel.h"
#include "rose/kernels/adamw.h"
#include "rose/model/backward.h"
#include "rose/model/weights.h"

namespace rose::trainer {

struct AdamWOptions {
  float beta1 = 0.9f, beta2 = 0.99f, epsilon = 1e-8f;
  float weight_decay = 0.1f;  ///< of matrices; vectors (norms, biases) do not decay
};

class AdamW {
 public:
  AdamW(const model::WeightSet& weights, AdamWOptions options);

  /// One update of every parameter in place, from gradients multiplied by `scale`.
  /// Elements are independent: threads do not show.
  void step(const model::WeightSet& weights, const model::Gradients& gradients, float rate,
            float scale, core::ThreadPool& pool);

  std::int64_t steps() const { return steps_; }

 private:
  AdamWOptions options_;
  std::int64_t steps_ = 0;
  std::vector<float> first_, second_;  // m and v, flat, in the order of the gradients
};

/// The Euclidean norm of all gradients: squares summed in double over blocks of 1,024 elements of each
/// parameter, the blocks' sums added by a balanced tree in parameter order. Threads do not show.
double global_norm(std::span<const float> all, const model::WeightSet& weights,
                   core::ThreadPool& pool);

}  // namespace rose::trainer
