// Hold sets of characters and spell them in bytes.

#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rose/infer/language.h"

namespace rose::infer {

/// Sorted, disjoint ranges of code points, ends included. Surrogates may be in it, and are never
/// spelt.
class CharSet {
 public:
  using Range = std::pair<char32_t, char32_t>;
  static constexpr char32_t highest = 0x10FFFF;

  CharSet() = default;
  CharSet(std::initializer_list<Range> ranges) {
    for (const Range& r : ranges) add(r.first, r.second);
  }
  void add(char32_t first, char32_t last);
  void add(const CharSet& other) {
    for (const Range& r : other.ranges_) add(r.first, r.second);
  }
  CharSet complement() const;
  CharSet without(const CharSet& other) const;
  bool contains(char32_t c) const;
  const std::vector<Range>& ranges() const { return ranges_; }

 private:
  std::vector<Range> ranges_;
};

/// How a character is written.
enum class Spelling {
  utf8,
  json_string  ///< inside the quotes: escaped where JSON demands it, and nowhere else
};

/// One character of the set.
Language::Expression spell(Language& language, const CharSet& set, Spelling spelling);

/// The same spelling of a whole text, without quotes.
std::string json_spelling(std::string_view text);

/// One character inside a JSON string in any spelling: also \/, and \u with paired surrogates.
Language::Expression any_json_char(Language& language);

}  // namespace rose::infer
