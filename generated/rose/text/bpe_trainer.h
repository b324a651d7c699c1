// Learn a vocabulary from text.

#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rose/text/vocab.h"

namespace rose::text {

struct BpeTrainerOptions {
  std::size_t vocab_size = 30000;  ///< special tokens and the 256 bytes included
  std::int64_t min_frequency = 0;  ///< stop before a pair rarer than this
  std::size_t max_token_bytes = std::numeric_limits<std::size_t>::max();
  std::vector<std::string> special_tokens;  ///< get the first ids
  std::vector<SplitRule> split = {SplitRule::gpt2};
  bool nfc = false;
};

/// Byte-pair encoding as learnt by Sennrich et al. (2016), over bytes as in GPT-2; gives the merges
/// that the `BpeTrainer` of Hugging Face's tokenizers gives with the whole byte alphabet.
class BpeTrainer {
 public:
  explicit BpeTrainer(BpeTrainerOptions options) : options_(std::move(options)) {}

  void feed(std::string_view text);
  std::size_t distinct_words() const { return words_.size(); }
  Vocab train() const;

 private:
  BpeTrainerOptions options_;
  std::unordered_map<std::string, std::int64_t> words_;
};

}  // namespace rose::text
