// UTF-8: decode, validate, repair.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rose::core {

/// What stands at one place of a text.
struct Utf8Step {
  char32_t code_point = 0xFFFD;  ///< U+FFFD when the bytes are no character
  std::size_t length = 1;        ///< bytes it spans; of a broken one, its maximal subpart
  bool valid = false;
  bool incomplete = false;  ///< broken only because the text ends: more bytes could complete it
};

/// Decodes at `at` < text.size(), by Table 3-7 of the Unicode Standard (no surrogates, no
/// overlong forms, nothing above U+10FFFF).
Utf8Step decode_utf8(std::string_view text, std::size_t at) noexcept;

void append_utf8(std::string& out, char32_t code_point);

bool is_utf8(std::string_view text) noexcept;

/// Each maximal ill-formed part becomes one U+FFFD, as Unicode recommends and as browsers and
/// Python's errors="replace" do.
std::string repair_utf8(std::string_view text);

}  // namespace rose::core
