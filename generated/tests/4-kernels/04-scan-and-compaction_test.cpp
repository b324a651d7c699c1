// Tests of the chapter "Scan and compaction".

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

#include "labs/gpu/gpu_test.h"
#include "labs/gpu/scan.h"
#include "rose/core/rng.h"

namespace rose::labs {
namespace {

// Follow the tree with eight numbers.
std::vector<std::vector<int>> tree_steps(std::vector<int> x) {
  const std::size_t n = x.size();
  std::vector<std::vector<int>> steps;
  for (std::size_t d = 1; d < n; d *= 2) {
    for (std::size_t i = 2 * d - 1; i < n; i += 2 * d) x[i] += x[i - d];
    steps.push_back(x);
  }
  x[n - 1] = 0;
  for (std::size_t d = n / 2; d > 0; d /= 2) {
    for (std::size_t i = 2 * d - 1; i < n; i += 2 * d) {
      const int left = std::exchange(x[i - d], x[i]);
      x[i] += left;
    }
    steps.push_back(x);
  }
  return steps;
}

TEST(ScanTree, GoesUpAndDown) {
  const auto steps = tree_steps({3, 1, 7, 0, 4, 1, 6, 3});
  EXPECT_EQ(steps[0], (std::vector{3, 4, 7, 7, 4, 5, 6, 9}));
  EXPECT_EQ(steps[1], (std::vector{3, 4, 7, 11, 4, 5, 6, 14}));
  EXPECT_EQ(steps[2], (std::vector{3, 4, 7, 11, 4, 5, 6, 25}));
  EXPECT_EQ(steps[3], (std::vector{3, 4, 7, 0, 4, 5, 6, 11}));
  EXPECT_EQ(steps[4], (std::vector{3, 0, 7, 4, 4, 11, 6, 16}));
  EXPECT_EQ(steps[5], (std::vector{0, 3, 4, 11, 11, 15, 16, 22}));
}

// Let tiles look back in a random order.
struct TileOf {
  enum { fresh, looking, done } stage = fresh;
  std::int64_t next = 0;
  unsigned sum = 0;
};

TEST(LookBack, AnyOrderGivesTheSums) {
  core::Rng rng(7);
  for (int round = 0; round < 300; ++round) {
    const std::uint32_t tiles = 1 + rng.below(40);
    std::vector<unsigned> own(tiles), all(tiles), known(tiles, 0), before(tiles);
    for (unsigned& x : own) x = rng.below(1000);
    std::vector<TileOf> state(tiles);
    std::uint32_t started = 0, finished = 0;
    for (std::uint64_t steps = 0; finished < tiles; ++steps) {
      ASSERT_LT(steps, 100'000u) << "tiles wait for each other";
      if (started < tiles && rng.below(3) == 0) {  // the next free multiprocessor takes a tile
        known[started] = 1, state[started].next = static_cast<std::int64_t>(started) - 1;
        state[started++].stage = TileOf::looking;
        continue;
      }
      if (started == 0) continue;
      const std::size_t t = rng.below(started);
      TileOf& tile = state[t];
      if (tile.stage != TileOf::looking) continue;
      const auto asked = static_cast<std::size_t>(tile.next);
      if (tile.next >= 0) tile.sum += known[asked] == 2 ? all[asked] : own[asked];
      if (tile.next < 0 || known[asked] == 2) {
        before[t] = tile.sum, all[t] = tile.sum + own[t], known[t] = 2;
        tile.stage = TileOf::done, ++finished;
      }
      --tile.next;
    }
    unsigned sum = 0;
    for (std::size_t t = 0; t < tiles; ++t) {
      EXPECT_EQ(before[t], sum);
      sum += own[t];
    }
  }
}

// Every rung scans and keeps as a loop does.
using ScanGpu = gpu::GpuTest;

std::vector<std::uint32_t> sparse_numbers(std::int64_t count, std::uint32_t one_in) {
  core::Rng rng(static_cast<std::uint64_t>(count) + one_in);
  std::vector<std::uint32_t> x(static_cast<std::size_t>(count));
  for (std::uint32_t& value : x) value = rng.below(one_in) == 0 ? 1 + rng.below(1u << 31) : 0;
  return x;
}

TEST_F(ScanGpu, EveryRungAddsWhatCameBefore) {
  std::vector<std::pair<std::string, Scan*>> all{{"library", scan_library()}};
  for (const auto& rung : scan_ladder()) all.emplace_back(rung.name, rung.launch);
  for (const std::int64_t count : {0, 1, 5, 511, 513, 4096, 4097, 300'000, 5'000'011}) {
    const auto x = sparse_numbers(count, 1);
    std::vector<std::uint32_t> expected(x.size());
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) expected[i] = sum, sum += x[i];
    const gpu::Buffer memory(scan_workspace(count));
    for (const auto& [name, scan] : all) {
      const gpu::Buffer data = gpu::Buffer::of(std::span<const std::uint32_t>(x));
      gpu::Buffer out(data.bytes() + 4);
      out.poison();
      scan(data.as<std::uint32_t>(), count, out.as<std::uint32_t>(), memory.workspace(), {});
      gpu::synchronize({});
      auto result = out.values<std::uint32_t>();
      EXPECT_EQ(result.back(), 0xffffffffu) << name << " writes beyond the end";
      result.pop_back();
      EXPECT_TRUE(result == expected) << name << ", " << count;
    }
  }
}

// Every rung keeps what is not zero, in its order.
TEST_F(ScanGpu, EveryRungKeepsWhatIsNotZero) {
  std::vector<std::pair<std::string, Compact*>> all{{"library", compact_library()}};
  for (const auto& rung : compact_ladder()) all.emplace_back(rung.name, rung.launch);
  for (const std::int64_t count : {0, 1, 4095, 4097, 1'000'003}) {
    for (const std::uint32_t one_in : {1u, 2u, 1'000'000'000u}) {
      const auto x = sparse_numbers(count, one_in);
      std::vector<std::uint32_t> expected;
      std::copy_if(x.begin(), x.end(), std::back_inserter(expected),
                   [](std::uint32_t value) { return value != 0; });
      const gpu::Buffer in = gpu::Buffer::of(std::span<const std::uint32_t>(x)),
                        memory(compact_workspace(count)), kept(4);
      for (const auto& [name, compact] : all) {
        gpu::Buffer out(in.bytes() + 4);
        out.poison();
        compact(in.as<std::uint32_t>(), count, out.as<std::uint32_t>(), kept.as<std::uint32_t>(),
                memory.workspace(), {});
        gpu::synchronize({});
        ASSERT_EQ(kept.values<std::uint32_t>()[0], expected.size()) << name << ", " << count;
        auto result = out.values<std::uint32_t>();
        EXPECT_EQ(result[expected.size()], 0xffffffffu) << name;
        result.resize(expected.size());
        EXPECT_TRUE(result == expected) << name << ", " << count << ", one in " << one_in;
      }
    }
  }
}

}  // namespace
}  // namespace rose::labs
