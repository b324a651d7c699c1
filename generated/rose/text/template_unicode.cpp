// Walk, classify and convert characters.

#include "rose/text/template_unicode.h"

#include <cstring>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rose/core/utf8.h"
#include "rose/text/unicode.h"

namespace rose::text::jinja {
namespace {

// Unpack runs and mappings once.
using Runs = std::vector<std::pair<char32_t, char32_t>>;  // first, one past the last; sorted

Runs unpack_runs(std::string_view packed) {
  Runs runs;
  PackedNumbers numbers(packed);
  for (char32_t at = 0; !numbers.done();) {
    const char32_t first = at + numbers.next();
    at = first + numbers.next();
    runs.emplace_back(first, at);
  }
  return runs;
}

bool in_runs(const Runs& runs, char32_t c) {
  const auto after = std::upper_bound(runs.begin(), runs.end(), c,
                                      [](char32_t x, const auto& run) { return x < run.first; });
  return after != runs.begin() && c < std::prev(after)->second;
}

// Unpack the case mappings.
using Mapping = std::unordered_map<char32_t, std::string>;

Mapping unpack_mapping(std::string_view steps, std::string_view expansions) {
  Mapping mapping;
  PackedNumbers numbers(steps);
  for (char32_t end = 0; !numbers.done();) {
    char32_t c = end + numbers.next();
    const std::uint32_t count = numbers.next(), step = numbers.next();
    const std::int32_t distance = numbers.next_signed();
    for (std::uint32_t i = 0; i < count; ++i, c += step) {
      core::append_utf8(mapping[c], static_cast<char32_t>(static_cast<std::int32_t>(c) + distance));
      end = c;
    }
  }
  PackedNumbers longer(expansions);
  while (!longer.done()) {
    std::string& to = mapping[longer.next()];
    for (std::uint32_t n = longer.next(); n > 0; --n) core::append_utf8(to, longer.next());
  }
  return mapping;
}

struct Cases {
  Runs unprintable, upper, lower;
  Mapping to_upper, to_lower, to_title;
};

const Cases& cases() {
  static const Cases all = [] {
    const PackedCases packed = packed_cases();
    return Cases{unpack_runs(packed.unprintable),
                 unpack_runs(packed.upper),
                 unpack_runs(packed.lower),
                 unpack_mapping(packed.to_upper, packed.to_upper_long),
                 unpack_mapping(packed.to_lower, packed.to_lower_long),
                 unpack_mapping(packed.to_title, packed.to_title_long)};
  }();
  return all;
}

void append_mapped(std::string& out, char32_t c, const Mapping& mapping) {
  const auto found = mapping.find(c);
  if (found != mapping.end()) {
    out += found->second;
  } else {
    core::append_utf8(out, c);
  }
}

}  // namespace

// Walk code points.
char32_t next_code_point(std::string_view text, std::size_t& at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) {
    ++at;
    return first;
  }
  const core::Utf8Step step = core::decode_utf8(text, at);
  at += step.length;
  return step.code_point;
}

void append_utf8(std::string& out, char32_t c) {
  core::append_utf8(out, c);
}

std::size_t count_code_points(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::size_t byte_offset(std::string_view text, std::size_t code_points) {
  std::size_t at = 0;
  for (; code_points > 0 && at < text.size(); --code_points) next_code_point(text, at);
  return at;
}

std::size_t invalid_utf8_at(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const core::Utf8Step step = core::decode_utf8(text, at);
    if (!step.valid) return at;
    at += step.length;
  }
  return std::string_view::npos;
}

// Answer as Python's str does.
bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_printable(char32_t c) {
  return c < 0x7F ? c >= 0x20 : !in_runs(cases().unprintable, c);
}
bool is_upper(char32_t c) {
  return in_runs(cases().upper, c);
}
bool is_lower(char32_t c) {
  return in_runs(cases().lower, c);
}
bool is_cased(char32_t c) {
  return is_upper(c) || is_lower(c) || cases().to_title.contains(c);
}
void append_upper(std::string& out, char32_t c) {
  append_mapped(out, c, cases().to_upper);
}
void append_lower(std::string& out, char32_t c) {
  append_mapped(out, c, cases().to_lower);
}
void append_title(std::string& out, char32_t c) {
  const auto& special = cases().to_title;
  append_mapped(out, c, special.contains(c) ? special : cases().to_upper);
}

// Strip, change case, search.
std::string_view strip(std::string_view text, bool left, bool right) {
  std::size_t at = 0;
  while (left && at < text.size()) {
    std::size_t next = at;
    if (!is_space(next_code_point(text, next))) break;
    at = next;
  }
  text.remove_prefix(at);
  while (right && !text.empty()) {
    std::size_t begin = text.size() - 1;
    while (begin > 0 && (text[begin] & 0xC0) == 0x80) --begin;
    std::size_t end = begin;
    if (!is_space(next_code_point(text, end))) break;
    text.remove_suffix(text.size() - begin);
  }
  return text;
}

std::string upper(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) append_upper(out, next_code_point(text, at));
  return out;
}

std::string lower(std::string_view text) {
  constexpr char32_t kSigma = 0x3A3, kFinalSigma = 0x3C2;
  std::string out;
  bool after_letter = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    std::size_t next = at;
    const bool last = at >= text.size() || !is_cased(next_code_point(text, next));
    if (c == kSigma && after_letter && last) {
      append_utf8(out, kFinalSigma);
    } else {
      append_lower(out, c);
    }
    after_letter = is_cased(c);
  }
  return out;
}

std::size_t find(std::string_view text, std::string_view needle, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

}  // namespace rose::text::jinja
