// Make a language of a grammar.

#include "rose/infer/ebnf.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <string>

#include "rose/core/error.h"
#include "rose/core/utf8.h"
#include "rose/infer/char_set.h"

namespace rose::infer {

namespace {

// Read a grammar from left to right.
class EbnfParser {
 public:
  using Expression = Language::Expression;
  EbnfParser(Language& l, std::string_view text) : l_(l), text_(text) {
    if (!core::is_utf8(text)) fail("the grammar is not UTF-8");
  }
  Language::Rule parse();

 private:
  [[noreturn]] void fail(const std::string& what) const {
    const std::string_view before = text_.substr(0, std::min(at_, text_.size()));
    const auto line = std::ranges::count(before, '\n') + 1;
    const std::size_t newline = before.rfind('\n');
    const std::size_t column =
        newline == std::string_view::npos ? before.size() + 1 : before.size() - newline;
    throw core::Error(core::Code::invalid_argument, fmt::format("{}:{}: {}", line, column, what))
        .in("grammar");
  }
  bool more() const { return at_ < text_.size(); }
  bool take(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  void skip() {  // blanks and comments
    while (more() &&
           (std::isspace(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '#')) {
      if (text_[at_] == '#')
        while (more() && text_[at_] != '\n') ++at_;
      else
        ++at_;
    }
  }
  std::string name();
  bool rule_begins();
  Language::Rule rule(const std::string& name);
  Expression alternatives();
  std::optional<Expression> atom();
  Expression quantified(Expression part);
  std::int32_t number();
  char32_t character();
  CharSet char_class();

  Language& l_;
  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::map<std::string, Language::Rule> rules_;
};

// Read rules and their alternatives.
std::string EbnfParser::name() {
  std::string out;
  while (more() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 ||
                    text_[at_] == '-' || text_[at_] == '_'))
    out += text_[at_++];
  return out;
}

bool EbnfParser::rule_begins() {
  const std::size_t before = at_;
  const bool named = !name().empty();
  skip();
  const bool begins = named && text_.substr(at_).starts_with("::=");
  at_ = before;
  return begins;
}

Language::Rule EbnfParser::rule(const std::string& name) {
  const auto [at, added] = rules_.try_emplace(name, 0);
  if (added) at->second = l_.rule(name);
  return at->second;
}

Language::Rule EbnfParser::parse() {
  for (skip(); more(); skip()) {
    if (!rule_begins()) fail("a rule is expected: name ::= alternatives");
    const std::string called = name();
    skip();
    take("::=");
    const Language::Rule r = rule(called);
    if (l_.definition(r) >= 0) fail(fmt::format("rule {} is defined twice", called));
    l_.define(r, alternatives());
  }
  for (const auto& [called, r] : rules_)
    if (l_.definition(r) < 0) fail(fmt::format("rule {} is not defined", called));
  if (!rules_.contains("root")) fail("there is no rule root");
  return rules_.at("root");
}

EbnfParser::Expression EbnfParser::alternatives() {
  constexpr int deepest = 100;
  if (++depth_ > deepest) fail("groups are nested too deeply");
  std::vector<Expression> choices;
  do {
    std::vector<Expression> parts;
    for (skip(); more(); skip()) {
      const auto part = atom();
      if (!part) break;
      parts.push_back(quantified(*part));
    }
    choices.push_back(l_.sequence(std::move(parts)));
  } while (take("|"));
  --depth_;
  return l_.choice(std::move(choices));
}

// Read one thing that can be repeated.
std::optional<EbnfParser::Expression> EbnfParser::atom() {
  if (take("\"")) {
    std::string literal;
    while (!take("\"")) core::append_utf8(literal, character());
    return l_.literal(literal);
  }
  if (take("[")) return spell(l_, char_class(), Spelling::utf8);
  if (take(".")) return spell(l_, {{0, CharSet::highest}}, Spelling::utf8);
  if (take("(")) {
    const Expression e = alternatives();
    if (!take(")")) fail("a ( without its )");
    return e;
  }
  if (rule_begins()) return std::nullopt;
  const std::string called = name();
  if (!called.empty()) return l_.call(rule(called));
  if (text_[at_] == '|' || (text_[at_] == ')' && depth_ > 1)) return std::nullopt;
  fail("a literal, a class, a group or a name is expected");
}

std::int32_t EbnfParser::number() {
  constexpr std::int32_t base = 10, most = 100'000;
  if (!more() || std::isdigit(static_cast<unsigned char>(text_[at_])) == 0)
    fail("a number is expected");
  std::int32_t n = 0;
  while (more() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) {
    n = n * base + (text_[at_++] - '0');
    if (n > most) fail("a bound is too large");
  }
  return n;
}

EbnfParser::Expression EbnfParser::quantified(Expression part) {
  if (take("*")) return l_.repeat(part, 0, Language::unbounded);
  if (take("+")) return l_.repeat(part, 1, Language::unbounded);
  if (take("?")) return l_.optional(part);
  if (!take("{")) return part;
  const std::int32_t least = number();
  std::int32_t most = least;
  if (take(",")) {
    if (take("}")) return l_.repeat(part, least, Language::unbounded);
    most = number();
  }
  if (!take("}")) fail("a } is missing");
  if (most < least) fail("bounds run backwards");
  return l_.repeat(part, least, most);
}

// Read a character and a class.
char32_t EbnfParser::character() {
  if (!more()) fail("a literal or a class has no end");
  const core::Utf8Step step = core::decode_utf8(text_, at_);
  at_ += step.length;
  if (step.code_point != '\\') return step.code_point;
  if (!more()) fail("an escape has no end");
  const char c = text_[at_++];
  constexpr std::size_t byte_digits = 2, unit_digits = 4, long_digits = 8;
  const std::size_t digits = c == 'x'   ? byte_digits
                             : c == 'u' ? unit_digits
                             : c == 'U' ? long_digits
                                        : 0;
  if (digits > 0) {
    const std::string hex(text_.substr(at_, digits));
    constexpr int base = 16;
    if (hex.size() < digits ||
        !std::ranges::all_of(hex, [](unsigned char d) { return std::isxdigit(d) != 0; }))
      fail("a hexadecimal digit is missing");
    at_ += digits;
    return static_cast<char32_t>(std::stoul(hex, nullptr, base));
  }
  switch (c) {
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    default: break;
  }
  if (std::isalnum(static_cast<unsigned char>(c)) != 0) fail("this escape is not known");
  return static_cast<unsigned char>(c);
}

CharSet EbnfParser::char_class() {
  const bool negated = take("^");
  CharSet set;
  while (!take("]")) {
    const char32_t first = character();
    char32_t last = first;
    if (!text_.substr(at_).starts_with("-]") && take("-")) last = character();
    if (last < first) fail("a range runs backwards");
    set.add(first, last);
  }
  return negated ? set.complement() : set;
}

}  // namespace

Language::Rule ebnf(Language& language, std::string_view grammar) {
  return EbnfParser(language, grammar).parse();
}

}  // namespace rose::infer
