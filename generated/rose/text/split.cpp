// Scan by hand what others write as a regular expression.

#include "rose/text/split.h"

#include "rose/text/code_point.h"

namespace rose::text {
namespace {

using Byte = unsigned char;

// Skip the characters of a class.
struct Char {
  std::uint32_t size;
  std::uint8_t bits;
};

Char look(const std::uint8_t* classes, const Byte* p, const Byte* end) {
  if (*p < 0x80) return {1, classes[*p]};
  const CodePoint c = read_code_point(p, end);
  return {c.size, classes[c.value]};
}

const Byte* skip(const std::uint8_t* classes, const Byte* p, const Byte* end, std::uint8_t bits) {
  while (p < end) {
    const Char c = look(classes, p, end);
    if ((c.bits & bits) == 0) break;
    p += c.size;
  }
  return p;
}

// End a run of spaces one short of the word that follows.
const Byte* spaces_end(const std::uint8_t* classes, const Byte* p, const Byte* end,
                       bool keep_line_ends) {
  const Byte* at = p;
  const Byte* last = p;              // where the last space of the run starts
  const Byte* after_line = nullptr;  // just after the last line end of the run
  while (at < end) {
    const Char c = look(classes, at, end);
    if ((c.bits & space) == 0) break;
    last = at;
    at += c.size;
    if (*last == '\n' || *last == '\r') after_line = at;
  }
  if (keep_line_ends && after_line != nullptr) return after_line;
  return at == end || last == p ? at : last;
}

// Measure an English contraction: 's 't 'm 'd 're 've 'll.
const Byte* contraction_end(const Byte* p, const Byte* end, bool any_case) {
  const auto at = [&](std::ptrdiff_t i) -> int {
    if (i >= end - p) return 0;
    return any_case && p[i] >= 'A' && p[i] <= 'Z' ? p[i] + 32 : p[i];
  };
  const int a = at(1), b = at(2);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return p + 2;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return p + 3;
  if (any_case && a == 0xC5 && b == 0xBF) return p + 3;  // U+017F, the long s, folds to s
  return p;
}

}  // namespace

// Follow GPT-2's expression, alternative by alternative.
const Byte* word_end_gpt2(const Byte* p, const Byte* end) {
  const std::uint8_t* classes = char_classes();
  if (*p == '\'') {
    if (const Byte* after = contraction_end(p, end, false); after != p) return after;
  }
  const Byte* start = *p == ' ' && p + 1 < end ? p + 1 : p;
  const std::uint8_t bits = look(classes, start, end).bits & (letter | number | other);
  return bits != 0 ? skip(classes, start, end, bits) : spaces_end(classes, p, end, false);
}

// Follow the expression of Llama 3 and Qwen.
const Byte* word_end_llama3(const Byte* p, const Byte* end, int digits) {
  const std::uint8_t* classes = char_classes();
  if (*p == '\'') {
    if (const Byte* after = contraction_end(p, end, true); after != p) return after;
  }
  const Char first = look(classes, p, end);
  const Byte* second = p + first.size;
  if ((first.bits & letter) != 0) return skip(classes, second, end, letter);
  if ((first.bits & number) != 0) {
    while (--digits > 0 && second < end) {
      const Char c = look(classes, second, end);
      if ((c.bits & number) == 0) break;
      second += c.size;
    }
    return second;
  }
  const std::uint8_t after = second < end ? look(classes, second, end).bits : std::uint8_t{0};
  if ((after & letter) != 0 && *p != '\r' && *p != '\n') return skip(classes, second, end, letter);
  if ((first.bits & other) != 0 || (*p == ' ' && (after & other) != 0)) {
    const Byte* at = skip(classes, second, end, other);
    while (at < end && (*at == '\r' || *at == '\n')) ++at;
    return at;
  }
  return spaces_end(classes, p, end, true);
}

// Set numeric characters apart.
const Byte* word_end_digits(const Byte* p, const Byte* end, bool grouped) {
  const std::uint8_t* classes = char_classes();
  const bool numeric_first = (look(classes, p, end).bits & numeric) != 0;
  if (numeric_first && !grouped) return p + look(classes, p, end).size;
  while (p < end) {
    const Char c = look(classes, p, end);
    if (((c.bits & numeric) != 0) != numeric_first) break;
    p += c.size;
  }
  return p;
}

}  // namespace rose::text
