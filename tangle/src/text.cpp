#include "text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>

namespace tangle {
namespace {

/// Length of the well-formed UTF-8 sequence at `at` (Unicode table 3-7), or 0.
std::size_t sequence_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u; };
  const auto continues = [&](std::size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return continues(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const unsigned low = lead == 0xE0 ? 0xA0 : 0x80;
    const unsigned high = lead == 0xED ? 0x9F : 0xBF;
    return byte(1) >= low && byte(1) <= high && continues(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const unsigned low = lead == 0xF0 ? 0x90 : 0x80;
    const unsigned high = lead == 0xF4 ? 0x8F : 0xBF;
    return byte(1) >= low && byte(1) <= high && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

/// Insertions, deletions, changes and swaps of neighbours that turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    next[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      next[j] = std::min({row[j - 1] + (a[i - 1] != b[j - 1]), row[j] + 1, next[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) next[j] = std::min(next[j], before[j - 2] + 1);
    }
    std::swap(before, row);
    std::swap(row, next);
  }
  return row[b.size()];
}

}  // namespace

std::size_t first_invalid_utf8(std::string_view text) {
  constexpr std::uint64_t high_bits = 0x8080808080808080ull;
  std::array<std::uint64_t, 4> words{};
  for (std::size_t at = 0, length = 0; at < text.size(); at += length) {
    const bool block = at + sizeof words <= text.size();
    if (block) std::memcpy(words.data(), text.data() + at, sizeof words);
    const bool ascii = block && ((words[0] | words[1] | words[2] | words[3]) & high_bits) == 0;
    length = ascii ? sizeof words : sequence_length(text, at);
    if (length == 0) return at;
  }
  return std::string_view::npos;
}

std::string printable(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = sequence_length(text, at);
    const unsigned char byte = static_cast<unsigned char>(text[at]);
    const bool control = (byte < 0x20 && byte != '\t') || byte == 0x7F;
    out += length == 0 || control ? std::string_view("\xEF\xBF\xBD") : text.substr(at, length);
    at += std::max<std::size_t>(length, 1);
  }
  return out;
}

bool is_id(std::string_view word, bool dots) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (word.empty() || word.size() > 100 || !plain(word[0])) return false;
  return std::all_of(word.begin(), word.end(), [&](char c) { return plain(c) || c == '-' || (dots && c == '.'); });
}

std::string_view line_at(std::string_view text, std::size_t offset) {
  offset = std::min(offset, text.size());
  const std::size_t before = text.substr(0, offset).rfind('\n');
  const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
  return text.substr(begin, std::min(text.find('\n', offset), text.size()) - begin);
}

std::size_t skip_lines(std::string_view text, std::size_t offset, std::size_t lines) {
  for (; lines > 0; --lines) offset = std::min(text.find('\n', offset), text.size() - 1) + 1;
  return offset;
}

std::string_view trimmed(std::string_view word) {
  const std::size_t first = word.find_first_not_of(" \t");
  if (first == std::string_view::npos) return word.substr(0, 0);
  return word.substr(first, word.find_last_not_of(" \t") - first + 1);
}

std::vector<std::string_view> nearest(std::string_view word, const std::vector<std::string_view>& candidates) {
  constexpr std::size_t most = 3;
  if (word.size() > 100) return {};
  const std::size_t limit = (word.size() + 1) / 3;  // of a word of one letter nothing is near
  std::vector<std::pair<std::size_t, std::string_view>> near;
  for (const std::string_view candidate : candidates) {
    if (candidate.size() > word.size() + limit || word.size() > candidate.size() + limit) continue;
    const std::size_t distance = edit_distance(word, candidate);
    if (distance <= limit) near.emplace_back(distance, candidate);
  }
  std::sort(near.begin(), near.end());
  near.erase(std::unique(near.begin(), near.end()), near.end());
  std::vector<std::string_view> out;
  for (std::size_t i = 0; i < std::min(most, near.size()); ++i) out.push_back(near[i].second);
  return out;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& candidates) {
  const auto near = nearest(word, candidates);
  std::string out;
  for (std::size_t i = 0; i < near.size(); ++i) {
    out += concat(i == 0 ? "did you mean " : i + 1 == near.size() ? " or " : ", ", quoted(near[i]));
  }
  return near.empty() ? out : out + "?";
}

std::string json_string(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const unsigned char byte = static_cast<unsigned char>(text[at]);
    const std::size_t length = sequence_length(text, at);
    if (byte == '"' || byte == '\\') out += concat('\\', text[at]);
    else if (byte == '\n') out += "\\n";
    else if (byte < 0x20) out += concat("\\u00", digits[byte >> 4], digits[byte & 15]);
    else if (length == 0) out += "\\ufffd";
    else out += text.substr(at, length);
    at += std::max<std::size_t>(length, 1);
  }
  return out + '"';
}

}  // namespace tangle
