// Put a preference loss in front of a device.

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rose/trainer/compute.h"
#include "rose/trainer/packed_sequences.h"
#include "rose/trainer/preference.h"

namespace rose::trainer {

/// Of a sequence of a micro-batch: its tokens, and which of them are answers.
std::uint64_t answer_key(std::span<const std::int32_t> ids, std::span<const std::int32_t> targets);

/// What is known of every answer before training.
struct KnownAnswer {
  double reference = 0.0;  ///< sum of log-probabilities of its tokens
  bool good = true;        ///< kto's verdict
};
using KnownAnswers = std::map<std::uint64_t, KnownAnswer>;

/// Sums of what a step, or a validation, has seen.
struct PreferenceRecord {
  double items = 0, ahead = 0, margin = 0;
  double chosen = 0, rejected = 0;      ///< mean log-probabilities a token
  double chosen_n = 0, rejected_n = 0;  ///< of so many answers

  void clear() { *this = {}; }
  void add(const PreferenceValue& value);
  void add(const AnswerScore& answer, bool good);
  /// Accuracy, mean margin, mean log-probability a token of preferred and of other answers.
  std::vector<std::pair<std::string, double>> numbers() const;
};

/// A device whose micro-batches are judged by a preference loss: two sequences are one item.
class PreferenceCompute final : public Compute {
 public:
  PreferenceCompute(std::unique_ptr<Compute> device, const PreferenceOptions& options,
                    std::shared_ptr<const KnownAnswers> known,
                    std::shared_ptr<PreferenceRecord> record);

  void zero_gradients() override;
  LossSum accumulate(const MicroBatch& batch, double scale) override;
  LossSum evaluate(const MicroBatch& batch) override;
  void logprobs(const MicroBatch& batch, std::span<float> out) override {
    device_->logprobs(batch, out);
  }
  double gradient_norm() override { return device_->gradient_norm(); }
  void update(const UpdateArgs& args) override { device_->update(args); }
  void skip() override { device_->skip(); }
  void visit(const std::function<void(const StateTensor&)>& visitor) override {
    device_->visit(visitor);
  }
  const model::WeightSet& weights() override { return device_->weights(); }
  DeviceInfo device() const override { return device_->device(); }
  std::function<void(const std::filesystem::path&)> files() override { return device_->files(); }

 private:
  LossSum judge(const MicroBatch& batch);

  std::unique_ptr<Compute> device_;
  PreferenceOptions options_;
  std::shared_ptr<const KnownAnswers> known_;
  std::shared_ptr<PreferenceRecord> record_;
  std::vector<float> logprobs_, weights_;
};

/// The sums of log-probabilities of all sequences' answers, by their keys.
std::map<std::uint64_t, double> answer_logprobs(Compute& device,
                                                const std::vector<ChatSequence>& sequences,
                                                std::int64_t tokens);

}  // namespace rose::trainer
