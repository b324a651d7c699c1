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
#include "rose/core/error.h"
#include "rose/core/parallel.h"
#include "rose/kernels/gpu/buffer.h"
#include "rose/kernels/gpu/softmax.h"
#include "rose/kernels/softmax.h"

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
