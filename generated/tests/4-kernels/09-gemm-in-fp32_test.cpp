// Tests of the chapter "A matrix product in fp32, rung by rung".

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
#include "labs/gpu/banks.h"
#include "labs/gpu/gpu_test.h"
#include "labs/gpu/matmul.h"
#include "rose/core/error.h"

namespace rose::labs {
namespace {

// Count the costs of a product of 4,096.
TEST(MatmulCost, TilesOf128NeedAHundredthOfTheTraffic) {
  constexpr double n = 4096;
  EXPECT_NEAR(matmul_bytes(n, n, n, 1, 1), 550e9, 1e9);
  EXPECT_NEAR(matmul_bytes(n, n, n, 32, 32), 17.2e9, 0.1e9);
  EXPECT_NEAR(matmul_bytes(n, n, n, 128, 128), 4.36e9, 0.01e9);
  EXPECT_EQ(fma_per_word(1, 1), 0.5);
  EXPECT_EQ(fma_per_word(8, 8), 4);
  EXPECT_NEAR(fma_per_word(4, 16), 3.2, 1e-9);
  EXPECT_NEAR(matmul_bytes(n, n, n, 64, 256) / matmul_bytes(n, n, n, 128, 128), 1.25, 0.01);
  const double peak = 132 * 128 * 2 * 1.98e9, flops = 2 * n * n * n;
  EXPECT_NEAR(peak, 66.9e12, 0.1e12);
  EXPECT_NEAR(1e3 * flops / peak, 2.05, 0.01);  // milliseconds
}

TEST(MatmulReference, TheExampleByHandAndTheBound) {
  const std::vector<float> a{1, 2, 3, 4}, b{5, 6, 7, 8};
  std::vector<float> c(4);
  matmul_chain(a, b, c, 2, 2);
  EXPECT_EQ(c, (std::vector<float>{19, 22, 43, 50}));
  const std::vector<float> x = gpu::random_values(7 * 300, 1), y = gpu::random_values(300 * 5, 2);
  std::vector<float> z(7 * 5);
  matmul_chain(x, y, z, 5, 300);
  for (std::size_t i = 0; i < z.size(); ++i) {
    double sum = 0, size = 0;
    for (std::size_t k = 0; k < 300; ++k) {
      const double product = double{x[i / 5 * 300 + k]} * double{y[k * 5 + i % 5]};
      sum += product, size += std::abs(product);
    }
    EXPECT_NEAR(z[i], sum, gpu::gamma(300) * size);
  }
}

// Name the size that does not fit.
TEST(Matmul, RefusesByName) {
  const auto refused = [](std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t unit) {
    try {
      check_matmul(m, n, k, unit);
    } catch (const core::Error& error) {
      return error.argument();
    }
    return std::string("nothing");
  };
  EXPECT_EQ(refused(-1, 4, 4, 1), "m");
  EXPECT_EQ(refused(1, 6, 4, 4), "n");
  EXPECT_EQ(refused(1, 4, 5, 4), "k");
  EXPECT_EQ(refused(1, 4, (1 << 20) + 4, 4), "k");
  EXPECT_EQ(refused(0, 3, 5, 1), "nothing");
}

// Count the cycles of each rung's accesses.
TEST(MatmulBanks, WhatTheRungsAskFor) {
  const auto turned = [](int pitch) {  // a warp stores the first of its words of A
    return bank_cycles([&](int lane) { return lane % 2 * 4 * pitch + lane / 2; }, 32, 1);
  };
  EXPECT_EQ(turned(128), 2);
  EXPECT_EQ(turned(132), 1);
  EXPECT_EQ(turned(130), 2);
  for (const int first : {0, 8}) {  // eight lanes load a quad of B each
    EXPECT_EQ(bank_cycles([&](int lane) { return (first + lane) * 8; }, 8, 4), 2);
    EXPECT_EQ(bank_cycles([&](int lane) { return (first + lane) * 4; }, 8, 4), 1);
  }
  const auto different = [](auto&& quad_of_lane) {  // quads of a warp, 32 words a cycle
    std::set<int> quads;
    for (int lane = 0; lane < 32; ++lane) quads.insert(quad_of_lane(lane));
    return quads.size();
  };
  EXPECT_EQ(different([](int lane) { return lane % 16; }), 16);  // rung 8, B: two cycles
  EXPECT_EQ(different([](int lane) { return lane % 8; }), 8);    // rung 9, B: one
  EXPECT_EQ(different([](int lane) { return lane / 8; }), 4);    // rung 9, A: one
  // The copies of rung 10: four rows of eight words of A, turned.
  EXPECT_EQ(bank_cycles([](int lane) { return lane % 8 * 132 + lane / 8; }, 32, 1), 1);
}

// Every rung has the bits of the chain.
using MatmulGpu = gpu::GpuTest;

std::vector<Rung<Matmul>> all_matmuls() {
  std::vector<Rung<Matmul>> all(matmul_ladder().begin(), matmul_ladder().end());
  all.insert(all.end(), matmul_tiles().begin(), matmul_tiles().end());
  return all;
}

TEST_F(MatmulGpu, EveryRungIsOneChain) {
  bool narrow = true;  // the rungs that take any size come first
  for (const Rung<Matmul>& rung : all_matmuls()) {
    narrow = narrow && std::string_view(rung.name) != "vector";
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                                  {33, 65, 17},
                                  {128, 128, 8},
                                  {100, 132, 36},
                                  {257, 260, 1000},
                                  {0, 4, 4},
                                  {5, 8, 0},
                                  {1, 4, 4}}) {
      if (!narrow && (n % 4 != 0 || k % 4 != 0)) {
        EXPECT_THROW(rung.launch(nullptr, nullptr, nullptr, m, n, k, {}), core::Error);
        continue;
      }
      const auto a = gpu::DeviceMatrix::of(gpu::random_values(m * k, 1), m, k, kernels::DType::f32);
      const auto b = gpu::DeviceMatrix::of(gpu::random_values(k * n, 2), k, n, kernels::DType::f32);
      const gpu::DeviceMatrix c(m, n, kernels::DType::f32);
      rung.launch(static_cast<const float*>(a.view().data),
                  static_cast<const float*>(b.view().data), static_cast<float*>(c.view().data), m,
                  n, k, {});
      std::vector<float> expected(static_cast<std::size_t>(m * n));
      matmul_chain(a.values(), b.values(), expected, static_cast<std::size_t>(n),
                   static_cast<std::size_t>(k));
      const std::string what = std::string(rung.name) + ", " + std::to_string(m) + " x " +
                               std::to_string(n) + " x " + std::to_string(k);
      gpu::expect_same_bits(c.values(), expected, what);
      c.expect_guards(what);
    }
  }
}

TEST_F(MatmulGpu, PiecesAreNearAndRepeat) {
  constexpr std::int64_t m = 70, n = 132, k = 960;
  const auto a = gpu::DeviceMatrix::of(gpu::random_values(m * k, 1), m, k, kernels::DType::f32);
  const auto b = gpu::DeviceMatrix::of(gpu::random_values(k * n, 2), k, n, kernels::DType::f32);
  const std::vector<float> x = a.values(), y = b.values();
  std::vector<double> exact, bounds;
  for (std::size_t i = 0; i < std::size_t{m * n}; ++i) {
    double sum = 0, size = 0;
    for (std::size_t t = 0; t < k; ++t) {
      const double product = double{x[i / n * k + t]} * double{y[t * n + i % n]};
      sum += product, size += std::abs(product);
    }
    exact.push_back(sum), bounds.push_back(gpu::gamma(k + 8) * size);
  }
  const gpu::Buffer parts(std::size_t{8 * m * n} * sizeof(float));
  std::vector<float> first;
  for (const std::int64_t pieces : {1, 5, 8, 8}) {
    const gpu::DeviceMatrix c(m, n, kernels::DType::f32);
    matmul_split(static_cast<const float*>(a.view().data), static_cast<const float*>(b.view().data),
                 static_cast<float*>(c.view().data), m, n, k, pieces, parts.workspace(), {});
    gpu::expect_close(c.values(), exact, bounds, kernels::DType::f32, "pieces");
    c.expect_guards("pieces");
    if (pieces == 8 && !first.empty()) gpu::expect_same_bits(c.values(), first, "again");
    if (pieces == 8) first = c.values();
  }
}

}  // namespace
}  // namespace rose::labs
