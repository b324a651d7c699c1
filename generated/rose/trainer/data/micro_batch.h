// Describe the tokens of one pass.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rose::trainer {

/// What one forward and backward pass reads. T tokens, S sequences.
struct MicroBatch {
  std::span<const std::int32_t> ids, positions;  ///< [T]
  std::span<const std::int32_t> row_offsets;     ///< [S + 1], from 0 to T
  std::span<const std::int32_t> targets;         ///< [T]; -1: no loss here
  std::span<const float> weights;                ///< [T] of each token's loss; empty: 1
};

/// Owns a micro-batch's memory, and is filled again and again.
struct MicroBatchBuffer {
  std::vector<std::int32_t> ids, positions, row_offsets, targets;
  std::vector<float> weights;

  MicroBatch view() const { return {ids, positions, row_offsets, targets, weights}; }

  void clear();
  /// One cell of the sequence that is being written.
  void push(std::int32_t id, std::int32_t target);
  /// Ends that sequence; positions start at 0 again.
  void end_sequence();

  bool operator==(const MicroBatchBuffer&) const = default;
};

}  // namespace rose::trainer
