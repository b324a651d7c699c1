// Measure how well a model predicts texts.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rose/text/tokenizer.h"
#include "rose/trainer/evaluate/scorer.h"

namespace rose::trainer {

struct TextScoreOptions {
  std::int64_t context = 1024;  ///< tokens of a window
  std::int64_t stride = 0;      ///< between windows' beginnings; 0: context, no overlap
  std::int64_t most = 4096;     ///< tokens of a forward pass
};

struct TextScore {
  Score total{};
  std::vector<Score> documents{};

  double loss() const { return -total.log_prob / static_cast<double>(total.tokens); }
  double perplexity() const;
  double bits_per_byte() const;
};

/// What a text is predicted from: the tokenizer's prefix, else its bos, else its eos; may be empty.
std::vector<std::int32_t> opening(const text::Tokenizer& tokenizer);

/// Documents as ids without separators. Throws core::Error (invalid_argument): a stride outside 1 to context, nothing to score.
TextScore score_documents(const LogProbs& log_probs, const text::Tokenizer& tokenizer,
                          std::span<const std::vector<std::int32_t>> documents,
                          const TextScoreOptions& options);

}  // namespace rose::trainer
