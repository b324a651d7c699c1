// A lexer that knows just enough of each language to tell comments, strings, keywords and names apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace weave {

enum class TokenKind : std::uint8_t { other, comment, string, keyword, name, include };

struct Token {
  TokenKind kind = TokenKind::other;
  std::size_t begin = 0, end = 0;
  std::string_view of(std::string_view text) const { return text.substr(begin, end - begin); }
};

/// The tokens of `text`; what lies between them is spaces. `language` is a fence's word, or a file's ending.
std::vector<Token> lex(std::string_view text, std::string_view language);

bool is_cpp(std::string_view language);

/// A file's language, by its name.
std::string_view language_of(std::string_view path);

}  // namespace weave
