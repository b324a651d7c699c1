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

/// `[a-z0-9][a-z0-9-]*`, at most 100 bytes.
bool is_id(std::string_view word);

/// `word` without spaces and tabs at both ends.
std::string_view trimmed(std::string_view word);

/// The candidates nearest to `word` by edit distance, best first, at most `most`; empty when none is near.
std::vector<std::string_view> nearest(std::string_view word, const std::vector<std::string_view>& candidates,
                                      std::size_t most = 3);

/// `"a"`, `"a" or "b"`, …, in quotes, for a message.
std::string join_or(const std::vector<std::string_view>& words);

/// Appends `text` to `out` as a JSON string with its quotes; invalid bytes become U+FFFD.
void append_json_string(std::string& out, std::string_view text);

}  // namespace tangle
