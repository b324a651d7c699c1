// Cut text into words as each family does.

#pragma once

#include <span>
#include <string_view>

#include "rose/text/unicode.h"

namespace rose::text {

/// One step of a pre-tokenizer.
enum class SplitRule {
  gpt2,          ///< 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  llama3,        ///< contractions in any case, a sign before letters, numbers by threes, line ends
  qwen2,         ///< as llama3, numbers one by one
  digits,        ///< each numeric character alone
  digit_groups,  ///< numeric characters together, apart from the rest
};

// Find where the word that starts at p ends; p is before end.
const unsigned char* word_end_gpt2(const unsigned char* p, const unsigned char* end);
const unsigned char* word_end_llama3(const unsigned char* p, const unsigned char* end, int digits);
const unsigned char* word_end_digits(const unsigned char* p, const unsigned char* end,
                                     bool grouped);

inline const unsigned char* word_end(SplitRule rule, const unsigned char* p,
                                     const unsigned char* end) {
  switch (rule) {
    case SplitRule::gpt2: return word_end_gpt2(p, end);
    case SplitRule::llama3: return word_end_llama3(p, end, 3);
    case SplitRule::qwen2: return word_end_llama3(p, end, 1);
    case SplitRule::digits: return word_end_digits(p, end, false);
    case SplitRule::digit_groups: return word_end_digits(p, end, true);
  }
  return end;
}

// Apply the rules one inside the other and hand each word to a function.
template <class F>
void split(std::span<const SplitRule> rules, std::string_view text, F&& word) {
  if (text.empty()) return;
  if (rules.empty()) return word(text);
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  const auto* end = p + text.size();
  while (p < end) {
    const unsigned char* next = word_end(rules[0], p, end);
    const std::string_view piece(reinterpret_cast<const char*>(p),
                                 static_cast<std::size_t>(next - p));
    if (rules.size() == 1) {
      word(piece);
    } else {
      split(rules.subspan(1), piece, word);
    }
    p = next;
  }
}

}  // namespace rose::text
