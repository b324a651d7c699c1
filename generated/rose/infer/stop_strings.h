// Find the first of many texts in a stream of bytes.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rose::infer {

/// The automaton of Aho and Corasick: immutable, shared by all choices of a request. A state is the
/// longest end of what was read that begins one of the texts; 0 is the start.
class StopStrings {
 public:
  /// The texts are not empty. Memory is about 30 bytes per byte of them.
  explicit StopStrings(std::span<const std::string> texts = {});

  std::int32_t next(std::int32_t state, char byte) const;
  /// The longest of the texts that end here, of equal ones the first; -1: none.
  std::int32_t match(std::int32_t state) const { return node(state).match; }
  /// Bytes at the end of what was read that begin a text.
  std::size_t depth(std::int32_t state) const { return node(state).depth; }
  std::size_t length(std::int32_t text) const { return lengths_[static_cast<std::size_t>(text)]; }
  bool empty() const { return lengths_.empty(); }

 private:
  struct Node {
    std::int32_t failure = 0, match = -1;
    std::uint32_t depth = 0, first_edge = 0, edges = 0;
  };
  struct Range {
    std::int32_t node;
    std::size_t begin, end;  // of the sorted texts that begin with the node's string
  };
  const Node& node(std::int32_t i) const { return nodes_[static_cast<std::size_t>(i)]; }
  std::int32_t child(std::int32_t node, char byte) const;  // -1: none
  void grow(const Range& range, std::span<const std::size_t> order,
            std::span<const std::string> texts, std::vector<Range>& todo);

  std::vector<Node> nodes_;
  std::vector<std::pair<char, std::int32_t>> edges_;  // of each node in a row, sorted
  std::array<std::int32_t, 256> start_{};             // the root's children, 0: none
  std::vector<std::size_t> lengths_;
};

}  // namespace rose::infer
