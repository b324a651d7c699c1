// Turn an answer's tokens into text that is never taken back.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rose/infer/sampling.h"
#include "rose/infer/stop_strings.h"
#include "rose/text/detokenizer.h"

namespace rose::infer {

/// What ended an answer: a token, or one of Sampling::stop.
struct Stop {
  std::int32_t token = -1, text = -1;
  bool operator==(const Stop&) const = default;
};

struct Delta {
  std::string text;          ///< valid UTF-8, final
  std::optional<Stop> stop;  ///< the answer ends here; tokens after it do not belong to it
};

class TextStream {
 public:
  /// eos_ids end the text unless the request ignores them.
  TextStream(text::Tokenizer tokenizer, std::shared_ptr<const Sampling> sampling,
             std::span<const std::int32_t> eos_ids, bool skip_special = true);

  /// The text that the token makes final. Tokens after a stop give nothing.
  Delta push(std::int32_t token);
  /// The text that was held back, when the answer ended for another reason (length, cancelled).
  Delta finish();

 private:
  std::optional<Stop> scan(std::string_view piece, std::string& out);

  std::shared_ptr<const Sampling> sampling_;
  std::vector<std::int32_t> ends_;
  StopStrings stops_;
  text::Detokenizer detokenizer_;
  std::string piece_, held_;  // held_ is the longest end that begins a stop text
  std::int32_t state_ = 0;
  std::int64_t tokens_ = 0;
  std::optional<Stop> stop_;
};

}  // namespace rose::infer
