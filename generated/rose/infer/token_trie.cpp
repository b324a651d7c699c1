// Keep a vocabulary's bytes as a tree of common beginnings.

#include "rose/infer/token_trie.h"

#include <algorithm>

namespace rose::infer {

TokenTrie::TokenTrie(const text::Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  std::vector<Entry> entries;
  for (std::int32_t id = 0; id < tokenizer_.vocab_size(); ++id) {
    const std::string_view text = bytes(id);
    if (!text.empty()) entries.emplace_back(text, id);
    longest_ = std::max(longest_, text.size());
  }
  std::ranges::sort(entries);
  grow(entries, 0, 0);
}

std::string_view TokenTrie::bytes(std::int32_t token) const {
  if (token < 0 || token >= tokenizer_.vocab_size() || tokenizer_.is_special(token)) return {};
  return tokenizer_.bytes(token);
}

void TokenTrie::grow(std::span<const Entry> entries, std::size_t depth, unsigned char byte) {
  const std::size_t self = nodes_.size();
  nodes_.push_back({.first_token = static_cast<std::uint32_t>(tokens_.size()), .byte = byte});
  std::size_t at = 0;
  for (; at < entries.size() && entries[at].first.size() == depth; ++at)
    tokens_.push_back(entries[at].second);
  nodes_[self].tokens = static_cast<std::uint16_t>(at);
  while (at < entries.size()) {
    const char next = entries[at].first[depth];
    std::size_t to = at;
    while (to < entries.size() && entries[to].first[depth] == next) ++to;
    grow(entries.subspan(at, to - at), depth + 1, static_cast<unsigned char>(next));
    at = to;
  }
  nodes_[self].end = static_cast<std::int32_t>(nodes_.size());
}

}  // namespace rose::infer
