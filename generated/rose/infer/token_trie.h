// Keep a vocabulary's bytes as a tree of common beginnings.

#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "rose/text/tokenizer.h"

namespace rose::infer {

/// Nodes in preorder: the root is 0, node i's first child is i + 1, and end(i) is the node after its
/// subtree, the next sibling if it has one. Children stand in the order of their bytes.
class TokenTrie {
 public:
  explicit TokenTrie(const text::Tokenizer& tokenizer);

  std::int32_t end(std::int32_t node) const { return at(node).end; }
  unsigned char byte(std::int32_t node) const { return at(node).byte; }
  bool is_leaf(std::int32_t node) const { return at(node).end == node + 1; }
  /// The tokens whose bytes lead from the root to this node.
  std::span<const std::int32_t> tokens(std::int32_t node) const {
    return std::span(tokens_).subspan(at(node).first_token, at(node).tokens);
  }
  std::string_view bytes(std::int32_t token) const;  ///< empty for a special token
  std::size_t nodes() const { return nodes_.size(); }
  std::int32_t vocab_size() const { return tokenizer_.vocab_size(); }
  std::size_t longest() const { return longest_; }  ///< token, in bytes

 private:
  struct Node {
    std::int32_t end = 0;
    std::uint32_t first_token = 0;
    std::uint16_t tokens = 0;
    unsigned char byte = 0;
  };
  using Entry = std::pair<std::string_view, std::int32_t>;
  const Node& at(std::int32_t node) const { return nodes_[static_cast<std::size_t>(node)]; }
  void grow(std::span<const Entry> entries, std::size_t depth, unsigned char byte);

  text::Tokenizer tokenizer_;
  std::vector<Node> nodes_;
  std::vector<std::int32_t> tokens_;
  std::size_t longest_ = 0;
};

}  // namespace rose::infer
