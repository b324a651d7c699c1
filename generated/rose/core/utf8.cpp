// Walk the bytes by the table of the Unicode Standard.

#include "rose/core/utf8.h"

#include <array>

#include "rose/core/error.h"

namespace rose::core {

// Only the second byte has bounds that depend on the first.
Utf8Step decode_utf8(std::string_view text, std::size_t at) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(at);
  if (lead < 0x80) return {lead, 1, true, false};
  if (lead < 0xC2 || lead > 0xF4)
    return {};  // a continuation, an overlong form, or beyond U+10FFFF
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  unsigned low = 0x80, high = 0xBF;
  if (lead == 0xE0) low = 0xA0;   // shorter forms exist below
  if (lead == 0xED) high = 0x9F;  // surrogates above
  if (lead == 0xF0) low = 0x90;   // shorter forms exist below
  if (lead == 0xF4) high = 0x8F;  // U+10FFFF is the last
  char32_t code_point = lead & (0xFFu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if (at + i >= text.size()) return {0xFFFD, i, false, true};
    if (byte(at + i) < low || byte(at + i) > high) return {0xFFFD, i, false, false};
    code_point = code_point << 6 | (byte(at + i) & 0x3Fu);
    low = 0x80;
    high = 0xBF;
  }
  return {code_point, length, true, false};
}

// Encode, validate and repair.
void append_utf8(std::string& out, char32_t code_point) {
  if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point <= 0xDFFF)) {
    throw Error(Code::invalid_argument, "not a Unicode scalar value");
  }
  const auto put = [&](char32_t byte) {
    out += static_cast<char>(static_cast<unsigned char>(byte));
  };
  if (code_point < 0x80) return put(code_point);
  if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
  } else {
    if (code_point < 0x10000) {
      put(0xE0 | code_point >> 12);
    } else {
      put(0xF0 | code_point >> 18);
      put(0x80 | (code_point >> 12 & 0x3F));
    }
    put(0x80 | (code_point >> 6 & 0x3F));
  }
  put(0x80 | (code_point & 0x3F));
}

bool is_utf8(std::string_view text) noexcept {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    if (!step.valid) return false;
    at += step.length;
  }
  return true;
}

std::string repair_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    if (step.valid) {
      out.append(text.substr(at, step.length));
    } else {
      out.append("\xEF\xBF\xBD");
    }
    at += step.length;
  }
  return out;
}

}  // namespace rose::core
