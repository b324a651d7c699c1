// Learn from conversations.

#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rose/trainer/chat_encoder.h"
#include "rose/trainer/packed_sequences.h"
#include "rose/trainer/task.h"

namespace rose::trainer {

/// The template and tokenizer of a run's folder. Throws core::Error (invalid_argument) when there is no template.
ChatEncoder encoder_of(const std::filesystem::path& folder,
                       const std::optional<text::Tokenizer>& tokenizer);

/// Whether item `i` is held out when a share is: evenly, floor((i + 1) share) > floor(i share).
bool held_out(std::size_t i, double share);

/// What becomes of sequences of more than `context` cells. Throws core::Error naming the first when they are refused.
struct Fitted {
  std::vector<ChatSequence> sequences;
  std::int64_t cut = 0, skipped = 0;
};
Fitted fit(std::vector<ChatSequence> sequences, std::int64_t context, const std::string& too_long);

/// Rows of conversations whose answers are learnt.
class ChatTask final : public Task {
 public:
  ChatTask(const TrainConfig& config, const std::filesystem::path& folder,
           const std::optional<text::Tokenizer>& tokenizer);

  void next(MicroBatchBuffer& out) override { train_->next(config_.batch.rows, out); }
  core::json::value position() const override { return train_->position(); }
  void restore(const core::json::value& position) override { train_->restore(position); }
  LossSum validate(Compute& compute) override;
  std::vector<std::int32_t> prompt(const std::string& text) const override;
  std::string description() const override { return description_; }

 private:
  TrainConfig config_;
  ChatEncoder encoder_;
  std::optional<PackedSequences> train_;
  std::vector<ChatSequence> validation_;
  std::string description_;
};

}  // namespace rose::trainer
