// Make ready what a run needs.

#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rose/model/weights.h"
#include "rose/text/tokenizer.h"
#include "rose/trainer/config.h"
#include "rose/trainer/data/stream.h"

namespace rose::trainer {

/// The documents that paths name: a file is one; of a folder, every .txt and .md in path order, of .md the prose.
/// Throws core::Error (not_found) when there is none.
std::vector<std::string> read_documents(const std::vector<std::string>& paths);

/// FOLDER/tokenizer.json of a run that has begun; else as the configuration says, and written there. None when only shards are named.
std::optional<text::Tokenizer> prepare_tokenizer(const TrainConfig& config,
                                                 const std::filesystem::path& folder);

struct PreparedData {
  std::vector<DataSource> train, validation;  ///< validation may be empty
  std::optional<std::int32_t> separator;
  double bytes_per_token = 0.0;  ///< of the validation text; 0: unknown
};

/// Shards as named, and those of data.text in FOLDER/data, made unless they are there and the run has begun.
PreparedData prepare_data(const TrainConfig& config, const std::filesystem::path& folder,
                          const std::optional<text::Tokenizer>& tokenizer);

/// A checkpoint's weights as fp32 to train, or fresh ones; `stops` end an answer besides the tokens that did before.
std::shared_ptr<model::WeightSet> prepare_weights(const TrainConfig& config,
                                                  const std::optional<text::Tokenizer>& tokenizer,
                                                  std::span<const std::int32_t> stops = {});

/// Bytes that training on a CPU takes, about: weights, gradients, moments, activations of one micro-batch.
double cpu_training_bytes(const model::Config& config, std::int64_t parameters, std::int64_t tokens,
                          bool accumulates);

}  // namespace rose::trainer
