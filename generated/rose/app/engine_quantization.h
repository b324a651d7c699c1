// Ask for packed weights.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rose/app/cli.h"
#include "rose/model/files/checkpoint.h"
#include "rose/model/weights.h"
#include "rose/text/tokenizer.h"

namespace rose::app {

struct QuantizationOptions {
  std::string format = "none";
  std::int64_t group = -1;  ///< columns that share a scale; below 0: what is usual for the format
};

void add_quantization_options(CLI::App& command, QuantizationOptions& options);

/// The checkpoint's weights, packed as asked. With `plain` they can be multiplied on a CPU.
std::shared_ptr<const model::WeightSet> load_weights(const QuantizationOptions& options,
                                                     const model::Checkpoint& checkpoint,
                                                     bool plain = true);

/// A few paragraphs of English, for measuring on when nobody names a text.
std::string_view sample_text();
std::vector<std::int32_t> sample_ids(const text::Tokenizer& tokenizer);

}  // namespace rose::app
