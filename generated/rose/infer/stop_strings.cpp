// Find the first of many texts in a stream of bytes.

#include "rose/infer/stop_strings.h"

#include <algorithm>
#include <numeric>

namespace rose::infer {

// Grow the trie level by level, with its failure links.
StopStrings::StopStrings(std::span<const std::string> texts) : nodes_(1) {
  std::vector<std::size_t> order(texts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](auto a, auto b) { return texts[a] < texts[b]; });
  for (const std::string& text : texts) lengths_.push_back(text.size());
  std::vector<Range> level{{0, 0, texts.size()}}, below;
  while (!level.empty()) {
    below.clear();
    for (const Range& range : level) grow(range, order, texts, below);
    level.swap(below);
  }
  for (std::uint32_t e = 0; e < nodes_[0].edges; ++e)
    start_[static_cast<unsigned char>(edges_[e].first)] = edges_[e].second;
}

void StopStrings::grow(const Range& range, std::span<const std::size_t> order,
                       std::span<const std::string> texts, std::vector<Range>& todo) {
  const auto self = static_cast<std::size_t>(range.node);
  const std::size_t depth = nodes_[self].depth;
  std::size_t at = range.begin;
  while (at < range.end && texts[order[at]].size() == depth) ++at;  // the texts that end here
  const auto first_edge = static_cast<std::uint32_t>(edges_.size());
  while (at < range.end) {
    const char byte = texts[order[at]][depth];
    std::size_t end = at;
    while (end < range.end && texts[order[end]][depth] == byte) ++end;
    Node fresh{.depth = static_cast<std::uint32_t>(depth + 1)};
    if (range.node != 0) fresh.failure = next(nodes_[self].failure, byte);
    fresh.match = texts[order[at]].size() == depth + 1 ? static_cast<std::int32_t>(order[at])
                                                       : node(fresh.failure).match;
    const auto id = static_cast<std::int32_t>(nodes_.size());
    nodes_.push_back(fresh);
    edges_.emplace_back(byte, id);
    if (range.node == 0) start_[static_cast<unsigned char>(byte)] = id;
    todo.push_back({id, at, end});
    at = end;
  }
  nodes_[self].first_edge = first_edge;
  nodes_[self].edges = static_cast<std::uint32_t>(edges_.size()) - first_edge;
}

// Follow failure links until a child has the byte.
std::int32_t StopStrings::child(std::int32_t parent, char byte) const {
  const Node& n = node(parent);
  const auto begin = edges_.begin() + n.first_edge, end = begin + n.edges;
  const auto at = std::lower_bound(begin, end, byte, [](const auto& edge, char b) {
    return static_cast<unsigned char>(edge.first) < static_cast<unsigned char>(b);
  });
  return at != end && at->first == byte ? at->second : -1;
}

std::int32_t StopStrings::next(std::int32_t state, char byte) const {
  while (state != 0) {
    const std::int32_t to = child(state, byte);
    if (to >= 0) return to;
    state = node(state).failure;
  }
  return start_[static_cast<unsigned char>(byte)];
}

}  // namespace rose::infer
