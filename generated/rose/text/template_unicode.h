// What Python's str knows about characters.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rose::text::jinja {

// Declare the little of Unicode that Python's strings need.

/// Reads the code point at `at` and moves past it. `text` is valid UTF-8, `at` inside it.
char32_t next_code_point(std::string_view text, std::size_t& at);
void append_utf8(std::string& out, char32_t c);
std::size_t count_code_points(std::string_view text);
std::size_t byte_offset(std::string_view text, std::size_t code_points);  ///< of the n-th one
std::size_t invalid_utf8_at(std::string_view text);                       ///< npos when valid

bool is_space(char32_t c);      ///< str.isspace, and \s of Python's regular expressions
bool is_printable(char32_t c);  ///< what repr() leaves alone
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_cased(char32_t c);
void append_upper(std::string& out, char32_t c);
void append_lower(std::string& out, char32_t c);
void append_title(std::string& out, char32_t c);

std::string_view strip(std::string_view text, bool left = true, bool right = true);
std::string upper(std::string_view text);
std::string lower(std::string_view text);
/// Position of `needle` at or after `from`, npos when absent; linear even in the worst case.
std::size_t find(std::string_view text, std::string_view needle, std::size_t from = 0);

/// The generated tables, coded as `template_unicode.cpp` describes.
struct PackedCases {
  std::string_view unprintable, upper, lower;
  std::string_view to_upper, to_upper_long, to_lower, to_lower_long, to_title, to_title_long;
};
PackedCases packed_cases();

}  // namespace rose::text::jinja
