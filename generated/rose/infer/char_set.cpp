// Hold sets of characters and spell them in bytes.

#include "rose/infer/char_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "rose/core/utf8.h"
#include "rose/infer/automaton.h"

namespace rose::infer {

void CharSet::add(char32_t first, char32_t last) {
  std::vector<Range> merged;
  for (const Range& r : ranges_) {
    if (r.second + 1 < first || last + 1 < r.first) {
      merged.push_back(r);
    } else {
      first = std::min(first, r.first), last = std::max(last, r.second);
    }
  }
  merged.emplace_back(first, last);
  std::ranges::sort(merged);
  ranges_.swap(merged);
}

CharSet CharSet::complement() const {
  CharSet out;
  char32_t next = 0;
  for (const Range& r : ranges_) {
    if (next < r.first) out.ranges_.emplace_back(next, r.first - 1);
    next = r.second + 1;
  }
  if (next <= highest) out.ranges_.emplace_back(next, highest);
  return out;
}

CharSet CharSet::without(const CharSet& other) const {
  CharSet inverse = complement();
  inverse.add(other);
  return inverse.complement();
}

bool CharSet::contains(char32_t c) const {
  return std::ranges::any_of(ranges_,
                             [&](const Range& r) { return r.first <= c && c <= r.second; });
}

// Spell a range of code points as ranges of bytes.
namespace {

constexpr unsigned char continuation_first = 0x80, continuation_last = 0xBF;

Language::Expression between(Language& l, const std::string& low, const std::string& high,
                             std::size_t at) {
  const auto a = static_cast<unsigned char>(low[at]), b = static_cast<unsigned char>(high[at]);
  if (at + 1 == low.size()) return l.bytes(byte_range(a, b));
  const auto one = [&](unsigned char first, unsigned char last, const std::string& from,
                       const std::string& to) {
    return l.sequence({l.bytes(byte_range(first, last)), between(l, from, to, at + 1)});
  };
  std::string least = low, most = high;  // the lowest and the highest tails
  for (std::size_t i = at + 1; i < low.size(); ++i)
    least[i] = static_cast<char>(continuation_first),
    most[i] = static_cast<char>(continuation_last);
  if (a == b) return one(a, b, low, high);
  std::vector<Language::Expression> parts{one(a, a, low, most), one(b, b, least, high)};
  if (a + 1 < b)
    parts.push_back(
        one(static_cast<unsigned char>(a + 1), static_cast<unsigned char>(b - 1), least, most));
  return l.choice(std::move(parts));
}

Language::Expression spell_utf8(Language& l, const CharSet& set) {
  constexpr std::pair<char32_t, char32_t> bands[] = {
      {0x0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, CharSet::highest}};
  std::vector<Language::Expression> parts;
  ByteSet ascii;
  for (const auto& range : set.ranges()) {
    for (const auto& band : bands) {
      const char32_t first = std::max(range.first, band.first);
      const char32_t last = std::min(range.second, band.second);
      if (first > last) continue;
      if (band.first == 0) {
        ascii |= byte_range(static_cast<unsigned char>(first), static_cast<unsigned char>(last));
        continue;
      }
      std::string low, high;
      core::append_utf8(low, first);
      core::append_utf8(high, last);
      parts.push_back(between(l, low, high, 0));
    }
  }
  if (ascii.any()) parts.push_back(l.bytes(ascii));
  return l.choice(std::move(parts));
}

}  // namespace

// Spell characters inside a JSON string.
namespace {

Language::Expression small(Language& l, Language::Expression e) {
  return l.node(e).kind == Language::Kind::bytes ? e : l.machine(smallest_machine(l, e));
}

const CharSet& must_be_escaped() {
  static const CharSet set{{0x0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  return set;
}

std::string escaped(char32_t c) {
  switch (c) {
    case '\b': return "\\b";
    case '\f': return "\\f";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    case '"': return "\\\"";
    case '\\': return "\\\\";
    default: return fmt::format("\\u{:04x}", static_cast<unsigned>(c));
  }
}

}  // namespace

Language::Expression spell(Language& l, const CharSet& set, Spelling spelling) {
  if (spelling == Spelling::utf8) return small(l, spell_utf8(l, set));
  std::vector<Language::Expression> parts{spell_utf8(l, set.without(must_be_escaped()))};
  for (const auto& range : must_be_escaped().ranges())
    for (char32_t c = range.first; c <= range.second; ++c)
      if (set.contains(c)) parts.push_back(l.literal(escaped(c)));
  return small(l, l.choice(std::move(parts)));
}

std::string json_spelling(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto b = static_cast<unsigned char>(c);
    if (must_be_escaped().contains(b)) {
      out += escaped(b);
    } else {
      out += c;
    }
  }
  return out;
}

Language::Expression any_json_char(Language& l) {
  ByteSet hex = byte_range('0', '9') | byte_range('a', 'f') | byte_range('A', 'F');
  const auto digits = [&](std::int32_t n) { return l.repeat(l.bytes(hex), n, n); };
  const auto letter = [&](std::string_view letters) {
    ByteSet set;
    for (const char c : letters) set.set(static_cast<unsigned char>(c));
    return l.bytes(set);
  };
  // Below D800 or above DFFF: the first digit is not d, or it is and the second is below 8.
  const auto plain = l.choice(
      {l.sequence({l.bytes(hex & ~(byte_range('d', 'd') | byte_range('D', 'D'))), digits(3)}),
       l.sequence({letter("dD"), letter("01234567"), digits(2)})});
  const auto pair = l.sequence({letter("dD"), letter("89abAB"), digits(2), l.literal("\\u"),
                                letter("dD"), letter("cdefCDEF"), digits(2)});
  const CharSet raw = CharSet{{0, CharSet::highest}}.without(must_be_escaped());
  return small(
      l, l.choice({spell_utf8(l, raw),
                   l.sequence({l.literal("\\"),
                               l.choice({letter("\"\\/bfnrt"),
                                         l.sequence({letter("u"), l.choice({plain, pair})})})})}));
}

}  // namespace rose::infer
