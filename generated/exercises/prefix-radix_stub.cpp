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
  std::vector<std::int32_t> find(std::span<const std::int32_t>, std::size_t&, std::size_t) {
    return {};
  }
  /// Adds a page below a node; returns its node.
  std::size_t add(std::size_t, std::span<const std::int32_t>, std::int32_t) { return 0; }
  /// Removes the leaf that was found or added longest ago; returns its page, or 0.
  std::int32_t evict() { return 0; }
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
