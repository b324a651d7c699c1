// Narrow a sorted list byte by byte.

#include "rose/text/added_tokens.h"

#include <algorithm>

#include "rose/text/code_point.h"
#include "rose/text/normalize.h"

namespace rose::text {

AddedTokens::AddedTokens(const Vocab& vocab, bool normalized) {
  for (const AddedToken& token : vocab.added) {
    if (token.normalized != normalized || token.content.empty()) continue;
    entries_.push_back({normalized && vocab.nfc ? nfc(token.content) : token.content, token});
    first_byte_[static_cast<unsigned char>(entries_.back().content[0])] = true;
  }
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const Entry& a, const Entry& b) { return a.content < b.content; });
}

// Return the longest token that the text starts with, or null.
const AddedTokens::Entry* AddedTokens::longest_at(std::string_view text) const {
  const Entry* longest = nullptr;
  auto low = entries_.begin(), high = entries_.end();
  for (std::size_t depth = 0; low != high;
       ++depth) {  // entries [low, high) start with text[0, depth)
    if (low->content.size() == depth) {
      longest = &*low++;
      if (low == high) break;
    }
    if (depth == text.size()) break;
    const auto byte = [depth](const Entry& e) {
      return static_cast<unsigned char>(e.content[depth]);
    };
    const auto wanted = static_cast<unsigned char>(text[depth]);
    low = std::partition_point(low, high, [&](const Entry& e) { return byte(e) < wanted; });
    high = std::partition_point(low, high, [&](const Entry& e) { return byte(e) == wanted; });
  }
  return longest;
}

namespace {

// The class bits of the character that ends just before `at`, and where it starts.
std::pair<std::uint8_t, std::size_t> class_before(std::string_view text, std::size_t at) {
  const auto* begin = reinterpret_cast<const unsigned char*>(text.data());
  for (std::size_t back = 1; back <= std::min<std::size_t>(at, 4); ++back) {
    const CodePoint c = read_code_point(begin + at - back, begin + at);
    if (c.size == back && c.value < invalid_byte) return {char_classes()[c.value], at - back};
  }
  return {other, at - 1};
}

// The class bits of the character that starts at `at`, and where it ends.
std::pair<std::uint8_t, std::size_t> class_after(std::string_view text, std::size_t at) {
  const auto* begin = reinterpret_cast<const unsigned char*>(text.data());
  const CodePoint c = read_code_point(begin + at, begin + text.size());
  return {char_classes()[c.value], at + c.size};
}

bool touches_word(std::string_view text, std::size_t begin, std::size_t end) {
  return (begin > 0 && (class_before(text, begin).first & word) != 0) ||
         (end < text.size() && (class_after(text, end).first & word) != 0);
}

}  // namespace

// Search, then apply the token's flags.
AddedTokens::Match AddedTokens::find(std::string_view text, std::size_t from, std::size_t floor,
                                     bool parse_special) const {
  for (std::size_t at = from; at < text.size();) {
    if (!first_byte_[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    const Entry* entry = longest_at(text.substr(at));
    if (entry == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + entry->content.size();
    const AddedToken& token = entry->token;
    at = end;  // a match that does not count is text, all of it
    if (token.special && !parse_special) continue;
    if (token.single_word && touches_word(text, begin, end)) continue;
    if (token.lstrip) {
      while (begin > floor) {
        const auto [bits, start] = class_before(text, begin);
        if ((bits & space) == 0) break;
        begin = std::max(start, floor);
      }
    }
    while (token.rstrip && end < text.size()) {
      const auto [bits, next] = class_after(text, end);
      if ((bits & space) == 0) break;
      end = next;
    }
    return {begin, end, at, &token};
  }
  return {text.size(), text.size(), text.size(), nullptr};
}

}  // namespace rose::text
