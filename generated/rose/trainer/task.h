// Say what a run learns from.

#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rose/core/json.h"
#include "rose/text/tokenizer.h"
#include "rose/trainer/compute.h"
#include "rose/trainer/config.h"
#include "rose/trainer/data/micro_batch.h"

namespace rose::trainer {

/// Where batches come from, and how well the model does on what it was not shown.
class Task {
 public:
  virtual ~Task() = default;

  virtual void next(MicroBatchBuffer& out) = 0;  ///< config.batch.rows rows, about
  virtual core::json::value position() const = 0;
  virtual void restore(const core::json::value& position) = 0;
  /// Sums over what is held out; no tokens when nothing is.
  virtual LossSum validate(Compute& compute) = 0;
  virtual double bytes_per_token() const { return 0.0; }  ///< of what is held out; 0: unknown
  /// The tokens that a sample begins with.
  virtual std::vector<std::int32_t> prompt(const std::string& text) const = 0;
  /// An objective of its own stands in front of the device's.
  virtual std::unique_ptr<Compute> objective(std::unique_ptr<Compute> device) { return device; }
  /// More numbers of the last step or validation, for the record.
  virtual std::vector<std::pair<std::string, double>> numbers() { return {}; }
  virtual std::string description() const { return ""; }  ///< a line for people; may be empty
  virtual double stalled_seconds() const { return 0.0; }  ///< that next() has waited for data
};

/// The task of `config`, in FOLDER. `positions` and `vocabulary` are the model's.
std::unique_ptr<Task> make_task(const TrainConfig& config, const std::filesystem::path& folder,
                                const std::optional<text::Tokenizer>& tokenizer,
                                const model::Config& shape);

/// Tokens that end an answer in this task, besides the model's own.
std::vector<std::int32_t> stops_of(const TrainConfig& config, const std::filesystem::path& folder,
                                   const std::optional<text::Tokenizer>& tokenizer);

/// The device that trains what the configuration says is trained.
std::unique_ptr<Compute> device_of(const TrainConfig& config,
                                   std::shared_ptr<model::WeightSet> weights,
                                   core::ThreadPool& pool);

}  // namespace rose::trainer
