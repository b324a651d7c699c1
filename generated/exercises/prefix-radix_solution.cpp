// An exercise of the chapter "The prefix cache".

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/infer/prefix_cache.h"

namespace rose::infer {
namespace {

// Keep the index as a tree.

/// One page per edge. Nodes are numbered; 0 is the root.
class RadixPrefixes {
 public:
  /// The pages along the longest known beginning; `node` ends where they end.
  std::vector<std::int32_t> find(std::span<const std::int32_t> text, std::size_t& node,
                                 std::size_t size) {
    std::vector<std::int32_t> pages;
    for (node = 0; text.size() >= size; text = text.subspan(size)) {
      const auto child = nodes_[node].children.find(
          {text.begin(), text.begin() + static_cast<std::ptrdiff_t>(size)});
      if (child == nodes_[node].children.end()) break;
      node = child->second;
      nodes_[node].used = ++clock_;
      pages.push_back(nodes_[node].page);
    }
    return pages;
  }
  /// Adds a page below a node; returns its node.
  std::size_t add(std::size_t node, std::span<const std::int32_t> tokens, std::int32_t page) {
    const std::vector<std::int32_t> key(tokens.begin(), tokens.end());
    nodes_.push_back({.parent = node, .key = key, .page = page, .used = ++clock_, .children = {}});
    return nodes_[node].children[key] = nodes_.size() - 1;
  }
  /// Removes the leaf that was found or added longest ago; returns its page, or 0.
  std::int32_t evict() {
    std::size_t oldest = 0;  // a heap or a list of leaves would find it faster
    for (std::size_t i = 1; i < nodes_.size(); ++i) {
      const bool leaf = nodes_[i].page != 0 && nodes_[i].children.empty();
      if (leaf && (oldest == 0 || nodes_[i].used < nodes_[oldest].used)) oldest = i;
    }
    if (oldest == 0) return 0;
    nodes_[nodes_[oldest].parent].children.erase(nodes_[oldest].key);
    return std::exchange(nodes_[oldest].page, 0);
  }

 private:
  struct Node {
    std::size_t parent = 0;
    std::vector<std::int32_t> key;
    std::int32_t page = 0;
    std::uint64_t used = 0;
    std::map<std::vector<std::int32_t>, std::size_t> children;
  };
  std::vector<Node> nodes_{1};
  std::uint64_t clock_ = 0;
};

// The tree finds what the chain finds.
TEST(RadixPrefixes, FindsTheLongestBeginningAndEvictsLeaves) {
  RadixPrefixes tree;
  std::size_t node = 0;
  const std::vector<std::int32_t> text{5, 3, 2, 8}, other{5, 3, 2, 9};
  EXPECT_TRUE(tree.find(text, node, 2).empty());
  const std::size_t first = tree.add(node, std::span(text).first(2), 1);
  tree.add(first, std::span(text).last(2), 2);
  EXPECT_EQ(tree.find(other, node, 2), std::vector<std::int32_t>{1});
  tree.add(node, std::span(other).last(2), 3);
  EXPECT_EQ(tree.find(text, node, 2), (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(tree.evict(), 3) << "the leaf used longest ago";
  EXPECT_EQ(tree.evict(), 2);
  EXPECT_EQ(tree.evict(), 1) << "a leaf, now";
  EXPECT_EQ(tree.evict(), 0);
}

}  // namespace
}  // namespace rose::infer
