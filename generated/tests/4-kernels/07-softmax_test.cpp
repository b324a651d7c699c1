// Tests of the chapter "Softmax over rows".

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
#include "labs/gpu/softmax_ladder.h"
#include "rose/core/error.h"
#include "rose/core/parallel.h"
#include "rose/kernels/gpu/buffer.h"
#include "rose/kernels/gpu/softmax.h"
#include "rose/kernels/softmax.h"

namespace rose::labs {
namespace {

// Pieces merge into the whole, in any grouping.
TEST(OnlineSoftmax, PiecesMergeIntoTheWhole) {
  const auto shrink = [](float a, float b) { return a == b ? 1.0f : std::exp(a - b); };
  // By hand: ln 2, then 0 and ln 4: the sum of exp(x - ln 4) is 1/2 + 1/4 + 1.
  const OnlineSum left{std::log(2.0f), 1},
      right = merge(OnlineSum{0, 1}, {std::log(4.0f), 1}, shrink);
  EXPECT_NEAR(merge(left, right, shrink).sum, 1.75, 1e-6);
  EXPECT_EQ(merge({-INFINITY, 0}, left, shrink).sum, 1);
  EXPECT_EQ(merge({-INFINITY, 0}, {-INFINITY, 0}, shrink).sum, 0);
  const std::vector<float> x = gpu::random_values(1000, 3, 5);
  double exact = 0;
  OnlineSum whole{-INFINITY, 0}, pairs{-INFINITY, 0};
  for (const float value : x) whole = merge(whole, OnlineSum{value, 1}, shrink);
  for (std::size_t i = 0; i < x.size(); i += 2)
    pairs = merge(pairs, merge(OnlineSum{x[i], 1}, OnlineSum{x[i + 1], 1}, shrink), shrink);
  for (const float value : x) exact += std::exp(double{value} - double{whole.highest});
  EXPECT_EQ(pairs.highest, whole.highest);
  EXPECT_NEAR(whole.sum, exact, 1e-5 * exact);
  EXPECT_NEAR(pairs.sum, exact, 1e-5 * exact);
}

TEST(OnlineSoftmax, RungsRefuseByName) {
  alignas(16) static std::array<std::byte, 64> memory{};
  const auto refused = [](const gpu::Matrix& x, const gpu::Matrix& y) {
    try {
      check_softmax(x, y, 16);
    } catch (const core::Error& error) {
      return error.argument();
    }
    return std::string("nothing");
  };
  const gpu::Matrix good{.data = memory.data(), .rows = 2, .cols = 8};
  gpu::Matrix odd = good, wide = good, apart = good;
  odd.cols = 7, wide.cols = 24, apart.stride = 12;
  EXPECT_EQ(refused(good, good), "nothing");
  EXPECT_EQ(refused(odd, odd), "x");
  EXPECT_EQ(refused(wide, wide), "x");
  EXPECT_EQ(refused(good, odd), "y");
  EXPECT_EQ(refused(good, apart), "y");
}

}  // namespace
}  // namespace rose::labs

namespace rose::kernels {
namespace {

// Sum to one, shift freely, and keep NaN in its row.
TEST(Softmax, ExampleShiftAndLimits) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  core::ThreadPool pool(1);
  // Scores 0 and ln 3: a quarter and three quarters, wherever they lie.
  for (const float shift : {0.0f, 1000.0f, -1000.0f}) {
    std::vector<float> x{shift, shift + std::log(3.0f)};
    softmax(x, 1, x, pool);
    EXPECT_NEAR(x[0], 0.25f, 4e-5f);
    EXPECT_NEAR(x[1], 0.75f, 4e-5f);
  }
  std::vector<float> x{0, -inf, 0, 0, inf, 0, -inf, -inf, -inf};
  softmax(x, 3, x, pool);
  EXPECT_EQ(x[1], 0.0f);
  EXPECT_EQ(x[0], 0.5f);
  EXPECT_TRUE(std::isnan(x[4]));
  EXPECT_TRUE(std::isnan(x[8]));
  EXPECT_THROW(softmax(x, 2, x, pool), core::Error);
  EXPECT_NO_THROW(softmax({}, 0, {}, pool));
}

// Slopes of the probabilities, and none along a shift.
TEST(Softmax, GoesBack) {
  core::ThreadPool pool(1);
  std::vector<float> dx(2);
  softmax_backward(std::vector<float>{0.25f, 0.75f}, std::vector<float>{1, 0}, 1, dx, pool);
  EXPECT_EQ(dx, (std::vector<float>{0.1875f, -0.1875f}));
  constexpr std::size_t cols = 333;
  std::vector<float> x(2 * cols), weights(2 * cols), y(2 * cols), back(2 * cols);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = std::sin(static_cast<float>(i));
    weights[i] = std::cos(3 * static_cast<float>(i));
  }
  softmax(x, 2, y, pool);
  softmax_backward(y, weights, 2, back, pool);
  double total = 0;
  for (std::size_t i = 0; i < cols; ++i) total += double{back[i]};
  EXPECT_NEAR(total, 0, 1e-7);
  // Beside a difference quotient of the weighted sum of the outputs, in double precision.
  const auto loss = [&](std::size_t at, double by) {
    double over = 0, sum = 0;
    for (std::size_t i = 0; i < cols; ++i) {
      const double e = std::exp(double{x[i]} + (i == at ? by : 0));
      over += double{weights[i]} * e;
      sum += e;
    }
    return over / sum;
  };
  for (const std::size_t at : {0u, 17u, 332u}) {
    EXPECT_NEAR((loss(at, 1e-4) - loss(at, -1e-4)) / 2e-4, double{back[at]}, 1e-7) << at;
  }
  EXPECT_THROW(softmax_backward(y, weights, 5, back, pool), core::Error);
}

}  // namespace
}  // namespace rose::kernels

namespace rose::kernels::gpu {
namespace {

// The same on a GPU, and narrow as wide.
using SoftmaxGpu = GpuTest;

TEST_F(SoftmaxGpu, LimitsAndNarrowAccess) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> rows{0, -inf, 0, 0, inf, 0, -inf, -inf, -inf};
  const auto x = DeviceMatrix::of(rows, 3, 3, DType::f32);
  softmax(x.view(), x.view(), {});
  const auto y = x.values();
  EXPECT_EQ(y[1], 0.0f);
  EXPECT_EQ(y[0], 0.5f);
  EXPECT_TRUE(std::isnan(y[4]) && std::isnan(y[8]));
  for (const std::int64_t c : {128, 1000, 4096, 8192, 20'000}) {
    const auto values = random_values(5 * c, 9, 3);
    const auto wide = DeviceMatrix::of(values, 5, c, DType::bf16);
    const auto narrow = DeviceMatrix::of(values, 5, c, DType::bf16, {.offset = 1});
    softmax(wide.view(), wide.view(), {});
    softmax(narrow.view(), narrow.view(), {});
    expect_same_bits(narrow.values(), wide.values(), "misaligned");
  }
}

}  // namespace
}  // namespace rose::kernels::gpu

namespace rose::labs {
namespace {

// Every rung is a softmax.
using SoftmaxLadderGpu = gpu::GpuTest;

void expect_softmax(const Rung<SoftmaxRows>& rung, std::int64_t rows, std::int64_t cols) {
  std::vector<float> values = gpu::random_values(rows * cols, 3, 4);
  values[0] = -INFINITY;
  const auto x = gpu::DeviceMatrix::of(values, rows, cols, kernels::DType::bf16);
  const gpu::DeviceMatrix y(rows, cols, kernels::DType::bf16);
  rung.launch(x.view(), y.view(), {});
  const std::vector<float> in = x.values();
  std::vector<double> expected, bounds;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::span row(in.data() + r * cols, static_cast<std::size_t>(cols));
    const double highest = double{*std::max_element(row.begin(), row.end())};
    double sum = 0;
    for (const float z : row) sum += std::exp(double{z} - highest);
    for (const float z : row) {
      expected.push_back(std::exp(double{z} - highest) / sum);
      // The sum's chain, and the fast exponentials of a range of at most 45, each rescaled at most 12 times.
      const double chain = gpu::gamma(static_cast<double>(cols) / 128 + 64);
      bounds.push_back(expected.back() * (chain + 64 * 0x1p-22 + 12 * 0x1p-22));
    }
  }
  const std::string what = std::string(rung.name) + " of " + std::to_string(cols);
  gpu::expect_close(y.values(), expected, bounds, kernels::DType::bf16, what);
  y.expect_guards(what);
}

TEST_F(SoftmaxLadderGpu, EveryRungIsASoftmax) {
  for (const Rung<SoftmaxRows>& rung : softmax_ladder()) {
    for (const std::int64_t cols : {8, 264, 4096, 8192, 20'000, 131'072}) {
      if (std::string_view(rung.name) == "registers" && cols > softmax_held) continue;
      if (std::string_view(rung.name) == "thread" && cols > 4096) continue;  // gamma of a chain
      expect_softmax(rung, 3, cols);
    }
    std::vector<float> special(3 * 8, 0.0f);
    special[3] = std::nanf("");
    special[8] = INFINITY;
    std::fill_n(special.begin() + 16, 8, -INFINITY);
    const auto x = gpu::DeviceMatrix::of(special, 3, 8, kernels::DType::bf16);
    rung.launch(x.view(), x.view(), {});
    const std::vector<float> y = x.values();
    for (const std::size_t i : {0u, 3u, 8u, 16u, 23u})
      EXPECT_TRUE(std::isnan(y[i])) << rung.name << i;
  }
}

}  // namespace
}  // namespace rose::labs
