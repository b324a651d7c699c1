// Small questions about text that several files ask.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tangle {

/// Offset of the first byte that is no part of valid UTF-8, or npos.
std::size_t first_invalid_utf8(std::string_view text);

/// `text` with every invalid byte replaced by U+FFFD.
std::string printable(std::string_view text);

/// `[a-z0-9][a-z0-9-]*`, at most 100 bytes; `dots`: with dots behind the first character, as the names of benches have.
bool is_id(std::string_view word, bool dots = false);

/// The whole line that holds `offset`, without its line end.
std::string_view line_at(std::string_view text, std::size_t offset);

/// Where the line begins that comes `lines` lines after the one that begins at `offset`, or the end of the text.
std::size_t skip_lines(std::string_view text, std::size_t offset, std::size_t lines);

/// `word` without spaces and tabs at both ends.
std::string_view trimmed(std::string_view word);

/// The candidates nearest to `word` by edit distance, best first, at most three; empty when none is near.
std::vector<std::string_view> nearest(std::string_view word, const std::vector<std::string_view>& candidates);

/// `did you mean "a" or "b"?`, with the candidates nearest to `word`; empty when none is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& candidates);

/// Its arguments one after the other: strings, views, literals and characters.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::string out;
  ((out += parts), ...);
  return out;
}

/// `word` in double quotes, for a message.
inline std::string quoted(std::string_view word) { return concat('"', word, '"'); }

/// `text` as a JSON string with its quotes; invalid bytes become U+FFFD.
std::string json_string(std::string_view text);

}  // namespace tangle
