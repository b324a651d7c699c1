// Learn from preferences.

#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rose/trainer/chat_task.h"
#include "rose/trainer/preference_compute.h"

namespace rose::trainer {

/// A line of a file: a prompt, and answers with verdicts.
struct Preference {
  core::json::array prompt;
  std::vector<std::pair<std::string, bool>> answers;  ///< one, or the preferred and then the other
  std::string where;
};

/// Throws core::Error with the place: corrupt for what is no such line, invalid_argument for a prompt that ends with an
/// answer, an answer without words, and two equal answers.
Preference parse_preference(std::string_view line, const std::string& where);

/// Rows of pairs, or of single answers each with a stranger.
class PreferenceTask final : public Task {
 public:
  PreferenceTask(const TrainConfig& config, const std::filesystem::path& folder,
                 const std::optional<text::Tokenizer>& tokenizer);

  void next(MicroBatchBuffer& out) override;
  core::json::value position() const override { return train_->position(); }
  void restore(const core::json::value& position) override { train_->restore(position); }
  LossSum validate(Compute& compute) override;
  std::vector<std::int32_t> prompt(const std::string& text) const override;
  std::unique_ptr<Compute> objective(std::unique_ptr<Compute> device) override;
  std::vector<std::pair<std::string, double>> numbers() override { return record_->numbers(); }
  std::string description() const override { return description_; }

 private:
  using Sequences = std::vector<ChatSequence>;
  Sequences items(const std::vector<Preference>& lines);
  ChatSequence sequence(const Preference& line, const std::string& answer) const;
  void learn_verdict(const ChatSequence& sequence, bool good);

  TrainConfig config_;
  std::filesystem::path folder_;
  ChatEncoder encoder_;
  std::optional<PackedSequences> train_;
  Sequences validation_;
  std::shared_ptr<KnownAnswers> known_ = std::make_shared<KnownAnswers>();
  std::shared_ptr<PreferenceRecord> record_ = std::make_shared<PreferenceRecord>();
  std::string description_;
};

}  // namespace rose::trainer
