// Tests of the chapter "One order for every path".

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

#include "labs/evidence/values.h"
#include "labs/gpu/gpu_test.h"
#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/kernels/dtype.h"
#include "rose/kernels/gpu/self_test.h"
#include "rose/kernels/numerics.h"
#include "rose/kernels/tensor_core.h"

namespace rose::kernels {
namespace {

// The order of a sum shows in its bits.
TEST(Order, TheOrderOfASumShowsInItsBits) {
  constexpr float u = 0x1p-24f;
  volatile float one = 1.0f;  // computed when the program runs, not by the compiler
  EXPECT_EQ((one + u) + u, 1.0f);
  EXPECT_EQ(one + (u + u), 1.0f + 2 * u);
  core::Rng rng(5);
  int differ = 0;
  constexpr int trials = 2000, terms = 64;
  for (int trial = 0; trial < trials; ++trial) {
    std::array<float, terms> x{};
    for (float& value : x) value = rng.normal();
    float ascending = 0, halves[2] = {0, 0};
    for (int i = 0; i < terms; ++i) {
      ascending += x[static_cast<std::size_t>(i)];
      halves[i / (terms / 2)] += x[static_cast<std::size_t>(i)];
    }
    differ += ascending != halves[0] + halves[1];
  }
  const double share = 100.0 * differ / trials;
  EXPECT_GT(share, 30);
  labs::write_value("order-shows-test", "share", share);
}

// The emulation by hand, against double precision, and cut in two.
TEST(TensorCore, AddsAlignedAndCutsTheRest) {
  const auto with = [](int count, float a, float b) {
    std::array<float, 16> x{}, y{};
    std::fill_n(x.begin(), count, a);
    std::fill_n(y.begin(), count, b);
    return tensor_core_step(1.0f, x, y);
  };
  EXPECT_EQ(with(1, 0x1p-12f, 0x1p-13f), 1.0f);
  EXPECT_EQ(with(2, 0x1p-12f, 0x1p-13f), 1.0f);
  EXPECT_EQ(with(4, 0x1p-12f, 0x1p-13f), 1.0f + 0x1p-23f);
  EXPECT_EQ(with(16, 0x1p-13f, 0x1p-13f), 1.0f);
  EXPECT_EQ(with(1, -0x1p-12f, 0x1p-13f), 1.0f - 0x1p-24f);  // cut towards zero
}

TEST(TensorCore, StaysWithinItsBoundAndShowsWhereKIsCut) {
  core::Rng rng(9);
  constexpr std::size_t terms = 3072;
  constexpr int trials = 400;
  int differ = 0;
  for (int trial = 0; trial < trials; ++trial) {
    std::vector<float> a(terms), b(terms);
    double exact = 0, absolute = 0;
    for (std::size_t k = 0; k < terms; ++k) {
      a[k] = to_float(to_bf16(rng.normal()));
      b[k] = to_float(to_bf16(rng.normal()));
      exact += static_cast<double>(a[k]) * static_cast<double>(b[k]);
      absolute += std::abs(static_cast<double>(a[k]) * static_cast<double>(b[k]));
    }
    const float whole = tensor_core_dot(a, b);
    // Each of 192 steps cuts 17 addends by less than 2^-25 of the largest partial sum each, and the result by 2^-23.
    EXPECT_LE(std::abs(static_cast<double>(whole) - exact),
              192 * (17 * 0x1p-25 + 0x1p-23) * absolute);
    const std::span<const float> x(a), y(b);
    const float split = tensor_core_dot(x.first(terms / 2), y.first(terms / 2)) +
                        tensor_core_dot(x.subspan(terms / 2), y.subspan(terms / 2));
    differ += whole != split;
  }
  const double share = 100.0 * differ / trials;
  EXPECT_GT(share, 90);
  labs::write_value("tensor-core-test", "share", share);
}

// Tiles and splits are counted from the first key, so a chunk's size cannot show.

/// The tiles that a query at position p visits, each as (split, first key, end).
std::vector<std::array<std::int64_t, 3>> tiles_of(std::int64_t position, std::int64_t head_dim) {
  std::vector<std::array<std::int64_t, 3>> tiles;
  const std::int64_t tile = numerics::key_tile_of(head_dim);
  for (std::int64_t first = 0; first <= position; first += tile) {
    tiles.push_back({first / numerics::key_split, first, std::min(first + tile, position + 1)});
  }
  return tiles;
}

TEST(Order, TilesOfAQueryDependOnItsPositionAlone) {
  static_assert(numerics::key_split % numerics::key_tile == 0);
  EXPECT_EQ(tiles_of(0, 64).size(), 1u);
  EXPECT_EQ(tiles_of(127, 64).size(), 1u);
  EXPECT_EQ(tiles_of(128, 64).size(), 2u);
  EXPECT_EQ(tiles_of(128, 256).size(), 3u);
  EXPECT_EQ(tiles_of(511, 64).back()[0], 0);
  EXPECT_EQ(tiles_of(512, 64).back()[0], 1);
  // A later token adds to the last tile, or begins one; what was there stays.
  for (std::int64_t position = 1; position < 1500; ++position) {
    const auto before = tiles_of(position - 1, 128), after = tiles_of(position, 128);
    for (std::size_t i = 0; i + 1 < before.size(); ++i) ASSERT_EQ(before[i], after[i]);
  }
}

}  // namespace
}  // namespace rose::kernels

namespace rose::kernels::gpu {
namespace {

// This machine's bits are canonical.
TEST_F(GpuTest, BitsOfAllPathsAreThoseOfThePlainLoop) {
  const SelfTest test = self_test(Extent::brief);
  std::printf("%s\n", test.summary().c_str());
  for (const BitCase& one : test.cases) {
    EXPECT_EQ(one.differing, 0) << one.path << ", " << one.shape << ", of " << one.outputs;
  }
  EXPECT_FALSE(test.cases.empty());
}

TEST(SelfTest, SaysWhatItFound) {
  SelfTest test;
  EXPECT_FALSE(test.canonical());  // nothing was tested
  test.cases.push_back({"general", "M 1", 10, 0});
  EXPECT_TRUE(test.canonical());
  test.cases.push_back({"small", "M 2", 10, 3});
  EXPECT_FALSE(test.canonical());
  EXPECT_EQ(test.summary(), "not canonical: 3 of 20 outputs differ, first in small, M 2");
  if (!available()) {
    EXPECT_THROW(self_test(Extent::brief), core::Error);
  }
}

}  // namespace
}  // namespace rose::kernels::gpu
