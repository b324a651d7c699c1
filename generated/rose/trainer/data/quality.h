// Say why a document is not worth reading.

#pragma once

#include <cstdint>
#include <string_view>

namespace rose::trainer {

struct QualityRules {
  std::int64_t min_words = 50, max_words = 100'000;
  double min_word_length = 3, max_word_length = 10;  ///< mean, in code points
  double min_lettered = 0.8;                         ///< share of words with a letter
  double max_repeated_lines = 0.3, max_bullets = 0.9, max_ellipses = 0.3;  ///< shares of lines
};

/// The first rule that the text breaks, in words; null when it keeps all.
const char* quality_problem(std::string_view text, const QualityRules& rules = {});

}  // namespace rose::trainer
