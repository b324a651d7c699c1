// Tests of the chapter "The prefix cache".

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

// Publish, find the longest beginning, evict the oldest.
std::vector<std::int32_t> known(const PrefixCache& cache, PrefixLink root,
                                const std::vector<std::int32_t>& tokens) {
  std::vector<std::int32_t> pages;
  cache.find(root, tokens, pages);
  return pages;
}
PrefixHash toy_hash(PrefixHash h, std::span<const std::int32_t> t) {
  return {
      (31 * h.low + 7 * static_cast<std::uint64_t>(t[0]) + static_cast<std::uint64_t>(t[1])) % 1000,
      0};
}

TEST(PrefixCache, FindsTheLongestBeginningAndEvictsTheOldest) {
  EXPECT_EQ(toy_hash({1, 0}, std::vector<std::int32_t>{5, 3}).low, 69u);
  EXPECT_EQ(toy_hash({69, 0}, std::vector<std::int32_t>{2, 8}).low, 161u);
  EXPECT_EQ(toy_hash({1, 0}, std::vector<std::int32_t>{4, 10}).low, 69u);

  using Pages = std::vector<std::int32_t>;
  KvPool pool(5);
  PrefixCache cache(pool, 2);
  const PrefixLink root = cache.root(1, "", "");
  const std::int32_t a = pool.take(), b = pool.take();
  PrefixLink at = cache.publish(root, std::vector<std::int32_t>{5, 3}, a);
  at = cache.publish(at, std::vector<std::int32_t>{2, 8}, b);
  EXPECT_EQ(known(cache, root, {5, 3, 2, 8, 1}), (Pages{a, b}));
  EXPECT_EQ(known(cache, root, {5, 3, 2, 9}), Pages{a}) << "a shared beginning, and then not";
  EXPECT_EQ(known(cache, root, {5, 3, 2}), Pages{a}) << "whole pages only";
  EXPECT_EQ(known(cache, root, {2, 8}), Pages{}) << "the same tokens elsewhere are another page";
  EXPECT_EQ(known(cache, cache.root(2, "", ""), {5, 3}), Pages{}) << "other weights";
  EXPECT_EQ(known(cache, cache.root(1, "lora", ""), {5, 3}), Pages{});
  EXPECT_EQ(known(cache, cache.root(1, "", "tenant"), {5, 3}), Pages{});

  std::vector<std::int32_t> row{a, b};
  release_pages(pool, row);  // the end first
  EXPECT_EQ(pool.counts().cached, 2);
  EXPECT_EQ(known(cache, root, {5, 3, 2, 8}), (Pages{a, b})) << "nobody's, and still known";
  pool.take(), pool.take();
  EXPECT_EQ(pool.take(), b) << "the end of a text is given up before its beginning";
  EXPECT_EQ(known(cache, root, {5, 3, 2, 8}), Pages{a});
  EXPECT_EQ(cache.statistics().evicted, 1);
  pool.share(a);
  EXPECT_THROW(pool.take(), core::Error);
  cache.forget_all();
  EXPECT_EQ(known(cache, cache.root(1, "", ""), {5, 3}), Pages{});
  pool.release(a);
  EXPECT_EQ(pool.state(a), PageState::free);
  pool.check();
}

// A hit is right even when every hash is equal.
TEST(PrefixCache, AHitIsRightWhateverTheHashDoes) {
  const std::array<PrefixCache::Hash, 3> hashes{chain_hash,
                                                [](PrefixHash h, std::span<const std::int32_t> t) {
                                                  return PrefixHash{chain_hash(h, t).low & 7, 0};
                                                },
                                                [](PrefixHash, std::span<const std::int32_t>) {
                                                  return PrefixHash{3, 0};
                                                }};
  for (const auto hash : hashes) {
    constexpr std::size_t size = 2;
    KvPool pool(24);
    PrefixCache cache(pool, size, hash);
    std::vector<std::vector<std::int32_t>> beginning(24);  // of each page: all tokens up to its end
    core::Rng rng(5);
    std::int64_t found = 0;
    for (int i = 0; i < 4'000; ++i) {
      if (i % 997 == 996) cache.forget_all();
      const PrefixLink root = cache.root(1, "", rng.below(4) == 0 ? "salt" : "");
      std::vector<std::int32_t> text(size * (1 + rng.below(6)));
      for (auto& token : text) token = static_cast<std::int32_t>(rng.below(2));
      std::vector<std::int32_t> pages;
      PrefixLink at = cache.find(root, text, pages);
      for (std::size_t p = 0; p < pages.size(); ++p, ++found) {
        const std::vector<std::int32_t> here(
            text.begin(), text.begin() + static_cast<std::ptrdiff_t>(size * (p + 1)));
        ASSERT_EQ(beginning[static_cast<std::size_t>(pages[p])], here);
        pool.share(pages[p]);
      }
      for (std::size_t p = pages.size(); p < text.size() / size; ++p) {
        const std::int32_t page = pool.take();
        pages.push_back(page);
        beginning[static_cast<std::size_t>(page)].assign(
            text.begin(), text.begin() + static_cast<std::ptrdiff_t>(size * (p + 1)));
        at = cache.publish(at, std::span(text).subspan(size * p, size), page);
      }
      release_pages(pool, pages);
      pool.check();
    }
    EXPECT_GT(found, 100);
    EXPECT_EQ(cache.statistics().collisions > 0, hash != hashes[0]);
  }
}

}  // namespace
}  // namespace rose::infer
