// Read numbers and strings as Python writes them.

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "rose/text/template_lexer.h"
#include "rose/text/template_unicode.h"

namespace rose::text::jinja {
namespace {

// Read digits with single underscores between them.
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

int digit_value(char c) {
  if (is_digit(c)) return c - '0';
  const int letter = (c | 0x20) - 'a';
  return letter >= 0 && letter < 26 ? letter + 10 : 99;
}

/// Returns where the digits from `at` end; `at` itself when there is none.
std::size_t digits(std::string_view source, std::size_t at, int base) {
  std::size_t end = at;
  while (at < source.size()) {
    if (source[at] == '_' && end == at) ++at;
    if (at >= source.size() || digit_value(source[at]) >= base) break;
    end = ++at;
  }
  return end;
}

// Tell a float from an integer, and find the end of either.

/// The end of a float that starts at `at`, or `at` when it is none.
std::size_t real_end(std::string_view source, std::size_t at) {
  const auto digit_at = [&](std::size_t i) { return i < source.size() && is_digit(source[i]); };
  if (at > 0 && source[at - 1] == '.') return at;  // x.1.5 is an item of an item
  const std::size_t whole = digits(source, at, 10);
  std::size_t end = whole;
  if (end < source.size() && source[end] == '.' && digit_at(end + 1)) {
    end = digits(source, end + 1, 10);
  }
  if (end < source.size() && (source[end] | 0x20) == 'e') {
    std::size_t exponent = end + 1;
    if (exponent < source.size() && (source[exponent] == '+' || source[exponent] == '-'))
      ++exponent;
    if (digit_at(exponent)) end = digits(source, exponent, 10);
  }
  return end == whole ? at : end;
}

struct IntegerShape {
  std::size_t begin, end;
  int base;
};

IntegerShape integer_shape(std::string_view source, std::size_t at) {
  if (source[at] != '0') return {at, digits(source, at, 10), 10};
  const char mark = at + 1 < source.size() ? static_cast<char>(source[at + 1] | 0x20) : '\0';
  const int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
  if (base != 10 && digits(source, at + 2, base) > at + 2) {
    return {at + 2, digits(source, at + 2, base), base};
  }
  return {at, digits(source, at, 1), 10};  // 007 is 00 and then 7
}

}  // namespace

// Read an integer in any base, or a float.
Lexeme read_number(std::string_view source, std::size_t& at) {
  const std::size_t start = at;
  Lexeme out;
  out.at = static_cast<std::uint32_t>(start);
  const std::size_t real = real_end(source, start);
  const bool is_real = real > start;
  const IntegerShape shape = is_real ? IntegerShape{start, real, 10} : integer_shape(source, start);
  at = shape.end;
  out.text = source.substr(shape.begin, shape.end - shape.begin);
  std::erase(out.text, '_');
  const char* first = out.text.data();
  const char* last = first + out.text.size();
  if (is_real) {
    out.token = Token::real;
    double value = 0;
    if (std::from_chars(first, last, value).ec != std::errc()) {
      value = std::strtod(first, nullptr);  // out of range: infinity or zero
    }
    out.number = Value(value);
    return out;
  }
  out.token = Token::integer;
  std::int64_t value = 0;
  if (std::from_chars(first, last, value, shape.base).ec != std::errc()) {
    fail_at(start, "the integer " + out.text + " does not fit 64 bits");
  }
  out.number = Value(value);
  return out;
}

namespace {

// Read the number of a character.
char32_t code(std::string_view source, std::size_t& at, std::size_t start, std::size_t n,
              int base) {
  std::uint32_t value = 0;
  const char* first = source.data() + at;
  const char* last = first + std::min(n, source.size() - at);
  const auto [end, error] = std::from_chars(first, last, value, base);
  if (error != std::errc() || end != first + n || value > 0x10ffff ||
      (value >= 0xd800 && value < 0xe000)) {
    fail_at(start, "this escape does not name a character",
            "\\x takes two hexadecimal digits, \\u four, \\U eight; surrogates are no characters");
  }
  at += n;
  return value;
}

// Resolve an escape as Python does.
void escape(std::string_view source, std::size_t& at, std::string& text) {
  static constexpr std::string_view kLetters = "abfnrtv\\'\"", kMeaning = "\a\b\f\n\r\t\v\\'\"";
  const std::size_t start = at - 1;
  const char c = source[at];
  const auto octal_at = [&](std::size_t i) {
    return i < source.size() && source[i] >= '0' && source[i] <= '7';
  };
  if (const auto known = kLetters.find(c); known != std::string_view::npos) {
    text += kMeaning[known];
    ++at;
  } else if (c == '\n') {
    ++at;  // a newline after a backslash vanishes
  } else if (c == 'x' || c == 'u' || c == 'U') {
    ++at;
    append_utf8(text, code(source, at, start, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16));
  } else if (octal_at(at)) {
    const std::size_t n = !octal_at(at + 1) ? 1 : !octal_at(at + 2) ? 2 : 3;
    append_utf8(text, code(source, at, start, n, 8));
  } else if (c == 'N') {
    fail_at(start, "\\N{...} escapes are not supported", "write the character itself");
  } else if (static_cast<unsigned char>(c) >= 0x80) {
    // Python spells the character out in ASCII first, so its own backslash pairs with ours.
    const auto character = static_cast<unsigned>(next_code_point(source, at));
    const char* form = character < 0x100 ? "\\x%02x" : character < 0x10000 ? "\\u%04x" : "\\U%08x";
    char spelled[16];
    std::snprintf(spelled, sizeof spelled, form, character);
    text += spelled;
  } else {
    text += '\\';  // an unknown escape stays as it is
  }
}

}  // namespace

// Read a string.
Lexeme read_string(std::string_view source, std::size_t& at) {
  Lexeme out;
  out.token = Token::string;
  out.at = static_cast<std::uint32_t>(at);
  const char quote = source[at++];
  while (at < source.size() && source[at] != quote) {
    if (source[at] != '\\') {
      out.text += source[at++];
    } else if (++at < source.size()) {
      escape(source, at, out.text);
    }
  }
  if (at >= source.size()) fail_at(out.at, "a string is not closed");
  ++at;
  return out;
}

}  // namespace rose::text::jinja
