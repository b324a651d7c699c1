// What a front knows of its model.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rose/text/template.h"
#include "rose/text/tokenizer.h"

namespace rose::serve {

struct ModelCard {
  std::string name;                  ///< what clients call it
  std::vector<std::string> aliases;  ///< other names that are accepted
  text::Tokenizer tokenizer;
  std::optional<text::ChatTemplate> chat{};
  std::string bos_token{}, eos_token{};  ///< for the template
  std::int64_t positions = 0;            ///< the longest context
  std::int64_t vocab = 0;                ///< rows of logits
  std::int64_t created = 0;              ///< seconds since 1970
};

}  // namespace rose::serve
