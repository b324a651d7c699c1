// Make a language of a regular expression.

#include "rose/infer/regex.h"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "rose/core/error.h"
#include "rose/core/utf8.h"

namespace rose::infer {

namespace {

// Name the classes, in the two widths.
struct ClassEscape {
  CharSet sure, possible;
};

const CharSet beyond_ascii{{0x80, CharSet::highest}};
const CharSet line_ends{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

CharSet joined(CharSet a, const CharSet& b) {
  a.add(b);
  return a;
}

std::optional<ClassEscape> class_escape(char32_t letter) {
  const CharSet ascii{{0, 0x7F}}, digit{{'0', '9'}};
  const CharSet word{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
  const CharSet space{{'\t', '\r'}, {' ', ' '}};
  const CharSet maybe_space{{'\t', '\r'}, {0x1C, 0x20}, {0x80, CharSet::highest}};
  switch (letter) {
    case 'd': return ClassEscape{digit, joined(digit, beyond_ascii)};
    case 'D': return ClassEscape{ascii.without(digit), digit.complement()};
    case 'w': return ClassEscape{word, joined(word, beyond_ascii)};
    case 'W': return ClassEscape{ascii.without(word), word.complement()};
    case 's': return ClassEscape{space, maybe_space};
    case 'S': return ClassEscape{ascii.without(maybe_space), space.complement()};
    default: return std::nullopt;
  }
}

// Read a pattern from left to right.
class RegexParser {
 public:
  using Expression = Language::Expression;
  RegexParser(Language& l, std::string_view pattern, Spelling spelling, bool whole)
      : l_(l), pattern_(pattern), spelling_(spelling), whole_(whole) {
    if (!core::is_utf8(pattern)) fail(core::Code::invalid_argument, "the pattern is not UTF-8");
  }
  Expression parse() {
    const Expression e = alternatives(true);
    if (at_ < pattern_.size()) fail(core::Code::invalid_argument, "a ) without its (");
    return e;
  }

 private:
  [[noreturn]] void fail(core::Code code, const std::string& what) const {
    throw core::Error(code, fmt::format("{} (at byte {} of {})", what, at_, pattern_))
        .in("pattern");
  }
  bool more() const { return at_ < pattern_.size(); }
  bool ahead(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    if (!ahead(text)) return false;
    at_ += text.size();
    return true;
  }
  char32_t take_char() {
    if (!more()) fail(core::Code::invalid_argument, "the pattern ends too early");
    const core::Utf8Step step = core::decode_utf8(pattern_, at_);
    at_ += step.length;
    return step.code_point;
  }
  Expression chars(const CharSet& set) { return spell(l_, set, spelling_); }
  Expression anything() {
    return l_.repeat(chars({{0, CharSet::highest}}), 0, Language::unbounded);
  }

  Expression alternatives(bool outer);
  Expression atom();
  Expression group();
  std::optional<ClassEscape> escape(char32_t& single);
  CharSet char_class();
  char32_t hex(int digits);
  Expression quantified(Expression part);
  std::optional<std::int32_t> number();

  Language& l_;
  std::string_view pattern_;
  Spelling spelling_;
  bool whole_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

// Read alternatives, with anchors at the ends of the outer ones.
RegexParser::Expression RegexParser::alternatives(bool outer) {
  constexpr int deepest = 100;
  if (++depth_ > deepest) fail(core::Code::resource_exhausted, "groups are nested too deeply");
  std::vector<Expression> choices;
  do {
    std::vector<Expression> parts;
    const bool from_start = outer && take("^");
    bool to_end = false;
    if (outer && !whole_ && !from_start) parts.push_back(anything());
    while (more() && !ahead("|") && !ahead(")")) {
      if (outer && ahead("$") && (at_ + 1 == pattern_.size() || pattern_[at_ + 1] == '|')) {
        to_end = take("$");
        break;
      }
      parts.push_back(quantified(atom()));
    }
    if (outer && !whole_ && !to_end) parts.push_back(anything());
    choices.push_back(l_.sequence(std::move(parts)));
  } while (take("|"));
  --depth_;
  return l_.choice(std::move(choices));
}

// Read one thing that can be repeated.
RegexParser::Expression RegexParser::atom() {
  if (take("(")) return group();
  if (take("[")) return chars(char_class());
  if (take(".")) return chars(line_ends.complement());
  if (ahead("^") || ahead("$"))
    fail(core::Code::unsupported, "an anchor that is not at the end of an outer alternative");
  if (ahead("*") || ahead("+") || ahead("?"))
    fail(core::Code::invalid_argument, "there is nothing to repeat");
  if (take("\\")) {
    char32_t single = 0;
    if (const auto set = escape(single)) return chars(set->sure);
    return chars({{single, single}});
  }
  const char32_t c = take_char();
  return chars({{c, c}});
}

// Read a group.
RegexParser::Expression RegexParser::group() {
  for (const char* look : {"?=", "?!", "?<=", "?<!"})
    if (ahead(look)) fail(core::Code::unsupported, "look-around is not regular");
  if (!take("?:") && (take("?<") || take("?P<"))) {  // a name, which means nothing here
    while (more() && !ahead(">")) take_char();
    if (!take(">")) fail(core::Code::invalid_argument, "a group's name has no end");
  }
  const Expression e = alternatives(false);
  if (!take(")")) fail(core::Code::invalid_argument, "a ( without its )");
  return e;
}

// Read what a backslash means.
char32_t RegexParser::hex(int digits) {
  char32_t value = 0;
  for (int i = 0; i < digits; ++i) {
    const char32_t c = take_char();
    const bool digit = c >= '0' && c <= '9';
    const bool letter = (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    if (!digit && !letter) fail(core::Code::invalid_argument, "a hexadecimal digit is missing");
    constexpr char32_t ten = 10, base = 16, to_lower = 0x20;
    value = value * base + (digit ? c - '0' : (c | to_lower) - 'a' + ten);
  }
  return value;
}

std::optional<ClassEscape> RegexParser::escape(char32_t& single) {
  const char32_t c = take_char();
  if (auto set = class_escape(c)) return set;
  constexpr int byte_digits = 2, unit_digits = 4;
  switch (c) {
    case 't': single = '\t'; break;
    case 'n': single = '\n'; break;
    case 'r': single = '\r'; break;
    case 'f': single = '\f'; break;
    case 'v': single = '\v'; break;
    case '0': single = 0; break;
    case 'x': single = hex(byte_digits); break;
    case 'u': single = hex(unit_digits); break;
    case 'b':
    case 'B': fail(core::Code::unsupported, "a word boundary is not a character");
    default:
      if (c >= '1' && c <= '9') fail(core::Code::unsupported, "a back reference is not regular");
      if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        fail(core::Code::unsupported, fmt::format("\\{} is not known", static_cast<char>(c)));
      single = c;
  }
  return std::nullopt;
}

// Read a class in brackets.
CharSet RegexParser::char_class() {
  const bool negated = take("^");
  CharSet set;
  while (!take("]")) {
    char32_t first = 0;
    std::optional<ClassEscape> known;
    const auto one = [&](char32_t& c) {
      c = take_char();
      return c == '\\' ? (take("b") ? (c = '\b', std::nullopt) : escape(c)) : std::nullopt;
    };
    known = one(first);
    if (known) {
      set.add(negated ? known->possible : known->sure);
      continue;
    }
    char32_t last = first;
    if (ahead("-") && !ahead("-]")) {
      take("-");
      if (one(last)) fail(core::Code::invalid_argument, "a range needs two characters");
      if (last < first) fail(core::Code::invalid_argument, "a range runs backwards");
    }
    set.add(first, last);
  }
  return negated ? set.complement() : set;
}

// Read how often.
std::optional<std::int32_t> RegexParser::number() {
  constexpr std::int32_t base = 10, most = 100'000;
  std::optional<std::int32_t> n;
  while (more() && pattern_[at_] >= '0' && pattern_[at_] <= '9') {
    n = n.value_or(0) * base + (pattern_[at_++] - '0');
    if (*n > most) fail(core::Code::resource_exhausted, "a bound is too large");
  }
  return n;
}

RegexParser::Expression RegexParser::quantified(Expression part) {
  for (;;) {
    const std::size_t before = at_;
    if (take("*")) {
      part = l_.repeat(part, 0, Language::unbounded);
    } else if (take("+")) {
      part = l_.repeat(part, 1, Language::unbounded);
    } else if (take("?")) {
      part = l_.optional(part);
    } else if (take("{")) {
      const auto least = number();
      const bool range = take(",");
      const auto most = range ? number() : least;
      if (!least || !take("}")) {  // not a bound: a brace
        at_ = before;
        return part;
      }
      if (most && *most < *least) fail(core::Code::invalid_argument, "bounds run backwards");
      part = l_.repeat(part, *least, most.value_or(Language::unbounded));
    } else {
      return part;
    }
    take("?");  // lazy: the same language
  }
}

}  // namespace

Language::Expression regex(Language& language, std::string_view pattern, Spelling spelling,
                           bool whole) {
  return RegexParser(language, pattern, spelling, whole).parse();
}

}  // namespace rose::infer
