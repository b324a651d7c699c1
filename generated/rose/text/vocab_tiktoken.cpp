// Read tiktoken files.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "rose/core/error.h"
#include "rose/text/vocab.h"

namespace rose::text {
namespace {

// Decode base64, or return nothing.
std::optional<std::string> decode_base64(std::string_view text) {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  std::string out;
  std::uint32_t buffer = 0;
  int bits = 0;
  for (const char c : text) {
    const std::size_t digit = digits.find(c);
    if (digit == digits.npos) return std::nullopt;
    buffer = (buffer << 6 | static_cast<std::uint32_t>(digit)) & 0xFFFFFF;
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out.push_back(static_cast<char>(buffer >> bits & 0xFF));
    }
  }
  return out;
}

// Derive the merges: every way to cut a token into two tokens, ranked by the token.
void derive_merges(Vocab& vocab) {
  std::unordered_map<std::string_view, std::int32_t> ids;
  for (std::size_t id = 0; id < vocab.tokens.size(); ++id)
    ids.emplace(vocab.tokens[id], static_cast<std::int32_t>(id));
  for (std::size_t id = 0; id < vocab.tokens.size(); ++id) {
    const std::string_view token = vocab.tokens[id];
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ids.find(token.substr(0, cut));
      const auto right = ids.find(token.substr(cut));
      if (left == ids.end() || right == ids.end()) continue;
      const auto rank = static_cast<std::int32_t>(id);
      vocab.merges.push_back({left->second, right->second, rank, rank});
    }
  }
}

}  // namespace

// Read the lines, then add the special tokens.
Vocab vocab_from_tiktoken(std::string_view text, std::vector<SplitRule> split,
                          const std::vector<std::pair<std::string, std::int32_t>>& special,
                          std::string_view where) {
  Vocab vocab;
  vocab.split = std::move(split);
  vocab.ignore_merges = true;
  const auto fail = [&](std::size_t line, std::string_view what) {
    throw core::Error(core::Code::corrupt, fmt::format("line {}: {}", line, what))
        .in(std::string(where));
  };
  const auto put = [&](std::int32_t id, std::string bytes) {
    const auto at = static_cast<std::size_t>(id);
    if (vocab.tokens.size() <= at) vocab.tokens.resize(at + 1);
    const bool fresh = vocab.tokens[at].empty();
    vocab.tokens[at] = std::move(bytes);
    return fresh;
  };
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    const std::size_t gap = line.find(' ');
    std::int32_t rank = -1;
    if (gap != line.npos) std::from_chars(line.data() + gap + 1, line.data() + line.size(), rank);
    const std::optional<std::string> bytes = decode_base64(line.substr(0, gap));
    if (rank < 0 || rank >= 1 << 21 || !bytes || bytes->empty())
      fail(number, "not a base64 token and a rank");
    if (!put(rank, *bytes)) fail(number, fmt::format("rank {} appears twice", rank));
  }
  derive_merges(vocab);
  for (const auto& [content, id] : special) {
    if (id < 0 || id >= 1 << 21)
      fail(0, fmt::format("special token \"{}\" has no sensible id", content));
    if (!put(id, content))
      fail(0, fmt::format("special token \"{}\" has the id of another token", content));
    vocab.added.push_back({.content = content, .id = id, .special = true});
  }
  check(vocab, where);
  return vocab;
}

}  // namespace rose::text
