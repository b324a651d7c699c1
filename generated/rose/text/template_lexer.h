// Cut a template into tokens.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rose/text/template_value.h"

namespace rose::text::jinja {

// Cut a template into text, tags and the tokens between.
enum class Token : std::uint8_t {
  data,            // text that is printed as it stands
  variable_begin,  // {{
  variable_end,    // }}
  block_begin,     // {%
  block_end,       // %}
  name,
  string,
  integer,
  real,
  op,  // one of + - * / // % ** ~ [ ] ( ) { } == != > >= < <= = . : | , ;
  end,
};

struct Lexeme {
  Token token = Token::end;
  std::uint32_t at = 0;  ///< byte offset in the template, for messages
  std::string text;      ///< data, name, operator; a string without quotes, escapes resolved
  Value number;
};

/// A failure of which the place is known.
struct LocatedFailure {
  Failure failure;
  std::uint32_t at;
};

[[noreturn]] inline void fail_at(std::size_t at, std::string message, std::string hint = {}) {
  throw LocatedFailure{{core::Code::invalid_argument, std::move(message), std::move(hint)},
                       static_cast<std::uint32_t>(at)};
}

std::string normalize_newlines(std::string_view source);  ///< drops one newline at the end, too
std::vector<Lexeme> tokenize(std::string_view source);    ///< of a normalized source
Lexeme read_number(std::string_view source, std::size_t& at);  ///< at a digit
Lexeme read_string(std::string_view source, std::size_t& at);  ///< at a quote

}  // namespace rose::text::jinja
