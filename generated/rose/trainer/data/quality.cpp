// Count words and lines.

#include "rose/trainer/data/quality.h"

#include <unordered_set>

namespace rose::trainer {

namespace {

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}
bool is_letter(char c) {  // every character beyond ASCII counts as one
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || static_cast<signed char>(c) < 0;
}
bool starts_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
}

struct Counts {
  double words = 0, characters = 0, lettered = 0;  // characters: of words
  double lines = 0, repeated = 0, bullets = 0, ellipses = 0;
};

Counts count(std::string_view text) {
  Counts n;
  bool in_word = false, lettered = false;
  for (const char c : text) {
    if (is_space(c)) {
      n.lettered += in_word && lettered;
      in_word = lettered = false;
      continue;
    }
    n.words += !in_word;
    in_word = true;
    lettered = lettered || is_letter(c);
    n.characters += starts_character(c);
  }
  n.lettered += in_word && lettered;
  std::unordered_set<std::string_view> seen;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    while (!line.empty() && is_space(line.front())) line.remove_prefix(1);
    while (!line.empty() && is_space(line.back())) line.remove_suffix(1);
    if (line.empty()) continue;
    ++n.lines;
    n.repeated += !seen.insert(line).second;
    n.bullets += line.starts_with("- ") || line.starts_with("* ") || line.starts_with("•");
    n.ellipses += line.ends_with("...") || line.ends_with("…");
  }
  return n;
}

}  // namespace

// Compare with the rules.
const char* quality_problem(std::string_view text, const QualityRules& rules) {
  const Counts n = count(text);
  if (n.words < static_cast<double>(rules.min_words)) return "too few words";
  if (n.words > static_cast<double>(rules.max_words)) return "too many words";
  if (n.characters < rules.min_word_length * n.words) return "words too short";
  if (n.characters > rules.max_word_length * n.words) return "words too long";
  if (n.lettered < rules.min_lettered * n.words) return "too few words with letters";
  if (n.repeated > rules.max_repeated_lines * n.lines) return "repeated lines";
  if (n.bullets > rules.max_bullets * n.lines) return "mostly bullets";
  if (n.ellipses > rules.max_ellipses * n.lines) return "lines that end in an ellipsis";
  return nullptr;
}

}  // namespace rose::trainer
