// Tests of the chapter "The KV pool".

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
#include "rose/infer/kv_pool.h"
#include "rose/infer/memory_plan.h"

namespace rose::infer {
namespace {

// Work the example, and fail with the name of the largest term.
TEST(MemoryPlan, GivesPagesWhatTheTermsLeave) {
  model::Config c;
  c.layers = 30, c.kv_heads = 3, c.head_dim = 64;
  const std::int64_t page = kv_page_bytes(c, 16, kernels::DType::f32);
  EXPECT_EQ(page, 737'280);
  EXPECT_EQ(kv_page_bytes(c, 16, kernels::DType::bf16), page / 2);
  const std::vector<MemoryTerm> terms{{"weights", 100'000'000}, {"one step", 200'000'000}};
  const MemoryPlan plan = plan_pages(std::int64_t{1} << 30, terms, page, 16);
  EXPECT_EQ(plan.pages, 1'049);
  EXPECT_EQ(plan.positions(), 16'768);
  EXPECT_EQ(plan_pages(std::int64_t{1} << 30, terms, page, 16, 10).pages, 11);
  EXPECT_THAT(plan.describe(), testing::HasSubstr("200.0 MB  one step"));
  try {
    plan_pages(300'000'000, terms, page, 16);
    FAIL();
  } catch (const core::Error& error) {
    EXPECT_EQ(error.code(), core::Code::resource_exhausted);
    EXPECT_THAT(error.what(), testing::HasSubstr("one step, takes 200000000 bytes"));
  }
  EXPECT_EQ(parse_kv_dtype("bfloat16", kernels::DType::f32), kernels::DType::bf16);
  EXPECT_EQ(parse_kv_dtype("auto", kernels::DType::f16), kernels::DType::f16);
  EXPECT_EQ(parse_kv_dtype("fp8", kernels::DType::f16), kernels::DType::u8);
  EXPECT_EQ(kv_page_bytes(c, 16, kernels::DType::u8), page / 4);
  EXPECT_THROW(parse_kv_dtype("fp8_e5m2", kernels::DType::f16), core::Error);
  EXPECT_NE(kv_key(kernels::DType::u8, {}), kv_key(kernels::DType::u8, {{1.0f}, {}}));
  EXPECT_NE(kv_key(kernels::DType::u8, {}), kv_key(kernels::DType::bf16, {}));
}

// Fork, copy on write, roll over.
TEST(KvPool, ForksCopiesAndRollsOver) {
  KvPool pool(8);
  std::vector<kernels::KvPageCopy> copies;
  std::vector<std::int32_t> a;
  reserve_pages(pool, a, 0, 6, 4, copies);
  EXPECT_EQ(a, (std::vector<std::int32_t>{1, 2}));
  std::vector<std::int32_t> b = a;
  for (const std::int32_t page : b) pool.share(page);

  EXPECT_TRUE(page_need(pool, b, 6, 1, 4).copy);
  reserve_pages(pool, b, 6, 1, 4, copies);
  EXPECT_EQ(b, (std::vector<std::int32_t>{1, 3}));
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].from, 2);
  EXPECT_EQ(copies[0].to, 3);
  EXPECT_EQ(page_need(pool, a, 6, 1, 4).fresh, 0);
  reserve_pages(pool, a, 6, 3, 4, copies);
  reserve_pages(pool, b, 7, 2, 4, copies);
  EXPECT_EQ(a, (std::vector<std::int32_t>{1, 2, 4}));
  EXPECT_EQ(b, (std::vector<std::int32_t>{1, 3, 5}));
  EXPECT_EQ(copies.size(), 1u);
  EXPECT_EQ(pool.owners(1), 2);

  pool.mark(1);  // its tokens can be found from now on
  release_pages(pool, a);
  EXPECT_EQ(pool.state(1), PageState::referenced);
  pool.launch();  // a step that reads b's pages
  release_pages(pool, b);
  EXPECT_EQ(pool.counts().in_flight, 3);
  EXPECT_EQ(pool.available(), 4);
  pool.complete();
  EXPECT_EQ(pool.state(1), PageState::cached);
  EXPECT_EQ(pool.available(), 7);
  pool.check();
  EXPECT_THROW(pool.release(1), core::Error);
  EXPECT_THROW(pool.complete(), core::Error);
}

// A world in which keys are numbers.
struct World {
  static constexpr int page_size = 4;
  explicit World(std::int64_t pages)
      : pool(pages), slots(static_cast<std::size_t>(pages * page_size), -1) {
    pool.on_evict = [this](std::int32_t page) { std::erase(published, page); };
  }
  std::int32_t& slot(std::int32_t page, std::int64_t position) {
    return slots[static_cast<std::size_t>(page) * page_size +
                 static_cast<std::size_t>(position % page_size)];
  }

  struct Row {
    std::vector<std::int32_t> said, pages;
  };
  bool write(Row& row, std::int64_t count, std::int32_t value) {
    const auto first = static_cast<std::int64_t>(row.said.size());
    if (page_need(pool, row.pages, first, count, page_size).fresh > pool.available()) return false;
    std::vector<kernels::KvPageCopy> copies;
    const std::vector<std::int32_t> before = row.pages;
    reserve_pages(pool, row.pages, first, count, page_size, copies);
    for (const std::int32_t page : row.pages) {
      const bool fresh = std::ranges::find(before, page) == before.end();
      for (int i = 0; fresh && i < page_size; ++i) slot(page, i) = -7;
    }
    for (const auto& copy : copies)
      for (int i = 0; i < page_size; ++i) slot(copy.to, i) = slot(copy.from, i);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int32_t page = row.pages[static_cast<std::size_t>((first + i) / page_size)];
      EXPECT_TRUE(pool.writable(page));
      row.said.push_back(value + static_cast<std::int32_t>(i));
      slot(page, first + i) = row.said.back();
    }
    return true;
  }
  void read(const Row& row) {
    for (std::size_t i = 0; i < row.said.size(); ++i)
      ASSERT_EQ(slot(row.pages[i / page_size], static_cast<std::int64_t>(i)), row.said[i]);
  }

  KvPool pool;
  std::vector<std::int32_t> slots, published;
  std::vector<Row> rows;
};

// A hundred thousand random acts.
TEST(KvPool, KeepsEveryTokenThroughRandomActs) {
  World world(40);
  core::Rng rng(11);
  std::int32_t value = 0;
  int steps = 0;
  for (int act = 0; act < 100'000; ++act) {
    const auto pick = [&]() -> World::Row& {
      return world.rows[rng.below(static_cast<std::uint32_t>(world.rows.size()))];
    };
    const std::uint32_t kind = rng.below(10);
    if (kind == 0 && world.rows.size() < 12) {
      world.rows.emplace_back();
    } else if (kind <= 4 && !world.rows.empty()) {
      world.write(pick(), 1 + rng.below(7), value);
      value = (value + 7) % 1'000'000;
    } else if (kind == 5 && !world.rows.empty() && world.rows.size() < 12) {
      World::Row twin = pick();
      for (const std::int32_t page : twin.pages) world.pool.share(page);
      world.rows.push_back(std::move(twin));
    } else if (kind == 6 && !world.rows.empty()) {
      World::Row& row = pick();
      release_pages(world.pool, row.pages);
      std::swap(row, world.rows.back());
      world.rows.pop_back();
    } else if (kind == 7 && !world.rows.empty()) {  // publish a full page
      const World::Row& row = pick();
      const std::size_t full = row.said.size() / World::page_size;
      if (full > 0 && !world.pool.marked(row.pages[full - 1])) {
        world.pool.mark(row.pages[full - 1]);
        world.published.push_back(row.pages[full - 1]);
      }
    } else if (kind == 8 && steps < 2) {
      world.pool.launch(), ++steps;
    } else if (kind == 9 && steps > 0) {
      world.pool.complete(), --steps;
    }
    if (act % 16 == 0) {
      world.pool.check();
      for (const World::Row& row : world.rows) world.read(row);
    }
  }
  for (World::Row& row : world.rows) release_pages(world.pool, row.pages);
  while (steps-- > 0) world.pool.complete();
  world.pool.check();
  EXPECT_EQ(world.pool.available(), world.pool.usable());
}

}  // namespace
}  // namespace rose::infer
