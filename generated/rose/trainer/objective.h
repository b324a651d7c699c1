// Say which tokens count, and how much.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "rose/model/forward.h"
#include "rose/trainer/data/micro_batch.h"

namespace rose::trainer {

/// What the forward pass takes of it.
inline model::Batch batch_of(const MicroBatch& b) {
  model::Batch batch;
  batch.ids = b.ids, batch.positions = b.positions, batch.row_offsets = b.row_offsets;
  return batch;
}

/// The weight of token t's loss: 0 without a target.
inline float weight_of(const MicroBatch& b, std::size_t t) {
  if (b.targets[t] < 0) return 0.0f;
  return b.weights.empty() ? 1.0f : b.weights[t];
}

/// Sums over tokens with a target; never a mean, so that sums of parts can be added.
struct LossSum {
  double loss = 0.0;        ///< of weight * -log p
  double weight = 0.0;      ///< of the weights
  std::int64_t tokens = 0;  ///< how many have a target
  double z = 0.0;           ///< of weight * (log-sum-exp)^2

  LossSum& operator+=(const LossSum& other);
  double mean() const { return weight == 0.0 ? 0.0 : loss / weight; }
};

/// The sum of the weights of all tokens with a target, what a step's sums are divided by.
double total_weight(const MicroBatch& batch);

/// Throws core::Error (invalid_argument) naming what does not fit: sizes, positions that are not consecutive or at or beyond
/// `positions` (0: any), a token or a target at or beyond `vocabulary`, a weight that is not finite.
void check(const MicroBatch& batch, std::int64_t vocabulary, std::int64_t positions);

}  // namespace rose::trainer
