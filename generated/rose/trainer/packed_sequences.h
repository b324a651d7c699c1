// Rows of whole sequences, as a function of seed and position.

#pragma once

#include <cstdint>
#include <vector>

#include "rose/core/json.h"
#include "rose/trainer/chat_encoder.h"
#include "rose/trainer/data/micro_batch.h"

namespace rose::trainer {

/// Appends the cells of a sequence: each token, and as its target the next one if that is learnt.
void push_sequence(const ChatSequence& sequence, MicroBatchBuffer& out);

/// Sequences in rows, shuffled anew in each epoch.
class PackedSequences {
 public:
  /// `together` sequences at a time are one item, which stays in one row. Throws core::Error (invalid_argument) for no
  /// sequences, or an item of more than `context` cells.
  PackedSequences(std::vector<ChatSequence> sequences, std::int64_t context, std::uint64_t seed,
                  bool shuffle, std::size_t together = 1);

  /// The next rows, without an end. Rows hold whole sequences of together at most `context` cells.
  void next(std::int64_t rows, MicroBatchBuffer& out);

  core::json::value position() const;
  /// Throws core::Error (corrupt) for the position of other data.
  void restore(const core::json::value& position);

  std::int64_t rows() const { return static_cast<std::int64_t>(order_.size()); }  ///< this epoch's
  std::int64_t epoch() const { return epoch_; }
  const std::vector<ChatSequence>& sequences() const { return sequences_; }
  std::int64_t cells() const { return cells_; }
  std::int64_t learnt() const { return learnt_; }

 private:
  void arrange();
  std::int64_t cells_of(std::size_t item) const;

  std::size_t together_;
  std::vector<ChatSequence> sequences_;
  std::int64_t context_, cells_ = 0, learnt_ = 0, epoch_ = 0, row_ = 0;
  std::uint64_t seed_, fingerprint_ = 0;
  bool shuffle_;
  std::vector<std::vector<std::int64_t>> order_;  // rows of items, of this epoch
};

}  // namespace rose::trainer
