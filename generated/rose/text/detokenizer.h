// Turn tokens into text as they come.

#pragma once

#include <string>

#include "rose/text/tokenizer.h"

namespace rose::text {

/// Every piece is valid UTF-8, and the pieces of a sequence, `finish` included, concatenate to its
/// `decode`.
class Detokenizer {
 public:
  explicit Detokenizer(Tokenizer tokenizer, bool skip_special = true)
      : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

  std::string push(std::int32_t id);  ///< the text that this token completes; may be empty
  std::string finish();  ///< U+FFFD if a character is left incomplete; ready for another sequence

  void push(std::int32_t id, std::string& out);  ///< the same, appended
  void finish(std::string& out);

  bool holds_back() const { return !pending_.empty(); }

 private:
  Tokenizer tokenizer_;
  bool skip_special_;
  std::string pending_;  // the start of a character: at most 3 bytes between calls
};

}  // namespace rose::text
