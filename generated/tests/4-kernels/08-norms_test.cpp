// Tests of the chapter "LayerNorm and RMSNorm, forward and backward".

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
#include "labs/gpu/layernorm_ladder.h"
#include "rose/core/error.h"
#include "rose/core/parallel.h"
#include "rose/kernels/gpu/buffer.h"
#include "rose/kernels/gpu/elementwise.h"
#include "rose/kernels/gpu/norm.h"
#include "rose/kernels/gpu/norm_arguments.h"
#include "rose/kernels/norm.h"
#include "rose/kernels/norm_backward.h"
#include "rose/kernels/norm_rows.h"

namespace rose::labs {
namespace {

// One pass loses the variance, Welford keeps it.
TEST(Moments, OnePassLosesWhatWelfordKeeps) {
  // By hand: 1, 2 and 3, 4 have squares 1/2 each around 1.5 and 3.5; together 5 around 2.5.
  const Moments low = merge({1, 1, 0}, {1, 2, 0}), high = merge({1, 3, 0}, {1, 4, 0});
  const Moments all = merge(low, high);
  EXPECT_EQ(low.squares, 0.5f);
  EXPECT_EQ(all.mean, 2.5f);
  EXPECT_EQ(all.squares, 5.0f);
  EXPECT_EQ(merge({0, 0, 0}, high).squares, 0.5f);
  EXPECT_EQ(merge(high, {0, 0, 0}).mean, 3.5f);

  const std::vector<float> x = gpu::random_values(4096, 1);
  double exact = 0, mean = 0;
  for (const float value : x) mean += (1000 + 0.01 * double{value}) / 4096;
  Moments kept{0, 0, 0};
  float sum = 0, squares = 0;
  for (const float value : x) {
    const auto shifted = static_cast<float>(1000 + 0.01 * double{value});
    exact += (double{shifted} - mean) * (double{shifted} - mean) / 4096;
    sum += shifted, squares += shifted * shifted;
    kept = merge(kept, {1, shifted, 0});
  }
  const float one_pass = squares / 4096 - (sum / 4096) * (sum / 4096);
  EXPECT_NEAR(double{kept.squares} / 4096, exact, 0.02 * exact);
  EXPECT_GT(std::abs(double{one_pass} - exact), exact);  // not even the first digit
}

TEST(LayernormLadder, RefusesByName) {
  alignas(16) static std::array<std::byte, 64> memory{};
  const auto refused = [](const gpu::Matrix& x, const gpu::Matrix& y) {
    try {
      check_layernorm(x, y, 16);
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
  EXPECT_EQ(refused(good, apart), "y");
}

}  // namespace
}  // namespace rose::labs

namespace rose::kernels {
namespace {

// Work the example, then compare with double precision and with the CPU's norms.
TEST(NormRows, AgreesWithDoubleAndWithTheOtherOrder) {
  std::vector<float> y(2);
  reference::rmsnorm_row(std::vector<float>{3, 4}, std::vector<float>{1, 1}, 0.0f, DType::f32, y);
  EXPECT_NEAR(y[0], 0.848528f, 1e-6f);
  EXPECT_NEAR(y[1], 1.131371f, 1e-6f);
  const std::vector<float> ones{1, 1}, zeros{0, 0};
  const auto moments =
      reference::layernorm_row(std::vector<float>{3, 4}, ones, zeros, 0.0f, DType::f32, y);
  EXPECT_EQ(moments.mean, 3.5f);
  EXPECT_EQ(moments.inv_std, 2.0f);
  EXPECT_EQ(y[0], -1.0f);
  EXPECT_EQ(y[1], 1.0f);

  std::mt19937 bits(3);
  std::normal_distribution<float> draw(0.5f, 2.0f);
  core::ThreadPool pool(1);
  for (const std::size_t c : {1u, 8u, 100u, 576u, 4096u, 9000u}) {
    std::vector<float> x(c), w(c), b(c), ours(c), cpu(c);
    for (std::size_t i = 0; i < c; ++i) x[i] = draw(bits), w[i] = draw(bits), b[i] = draw(bits);
    reference::layernorm_row(x, w, b, 1e-5f, DType::f32, ours);
    layernorm(x, 1, w, b, 1e-5f, cpu, {}, {}, pool);
    for (std::size_t i = 0; i < c; ++i)
      ASSERT_NEAR(ours[i], cpu[i], 1e-5f * (1 + std::fabs(cpu[i])));
    reference::rmsnorm_row(x, w, 1e-5f, DType::f32, ours);
    rmsnorm(x, 1, w, 1e-5f, cpu, {}, pool);
    for (std::size_t i = 0; i < c; ++i)
      ASSERT_NEAR(ours[i], cpu[i], 1e-5f * (1 + std::fabs(cpu[i])));
  }
}

}  // namespace
}  // namespace rose::kernels

namespace rose::kernels::gpu {
namespace {

// Refuse on the host what does not fit.
TEST(NormChecks, NamesTheArgument) {
  alignas(256) std::array<std::byte, 1024> memory{};
  const auto matrix = [&](std::int64_t rows, std::int64_t cols, DType dtype) {
    return Matrix{.data = memory.data(), .dtype = dtype, .rows = rows, .cols = cols};
  };
  const Matrix x = matrix(2, 8, DType::bf16), w = matrix(1, 8, DType::f32);
  const auto argument_of = [](auto&& call) {
    try {
      call();
    } catch (const core::Error& error) {
      return error.argument();
    }
    return std::string();
  };
  EXPECT_EQ(argument_of([&] { rmsnorm(x, matrix(1, 7, DType::f32), 0, x, nullptr, {}); }),
            "weight");
  EXPECT_EQ(argument_of([&] { rmsnorm(x, w, 0, matrix(3, 8, DType::bf16), nullptr, {}); }), "y");
  EXPECT_EQ(argument_of([&] { rmsnorm_heads(x, matrix(1, 3, DType::f32), 0, x, nullptr, {}); }),
            "weight");
  auto* const statistics = reinterpret_cast<float*>(memory.data());
  EXPECT_EQ(argument_of([&] { rmsnorm_backward(x, w, statistics, x, {}, x, statistics, {}, {}); }),
            "workspace");
  EXPECT_EQ(norm_backward_workspace(16'384, 4096), 2u * 256 * 4096 * 4);
  EXPECT_EQ(norm_backward_workspace(0, 4096), 0u);
  const Matrix none = matrix(0, 8, DType::bf16);
  EXPECT_NO_THROW(rmsnorm(none, w, 0, none, nullptr, {}));
}

// A row alone, misaligned, or unfused has the same bits.
using NormGpu = GpuTest;

TEST_F(NormGpu, FusedIsUnfusedAndNeighboursDoNotShow) {
  for (const std::int64_t c : {64, 128, 576, 1024, 4096, 8192, 12'288}) {
    const auto values = random_values(33 * c, 1, 2), other = random_values(33 * c, 2);
    const auto w = DeviceMatrix::of(random_values(c, 3), 1, c, DType::bf16);
    const auto x = DeviceMatrix::of(values, 33, c, DType::bf16),
               r = DeviceMatrix::of(other, 33, c, DType::bf16);
    const DeviceMatrix sum(33, c, DType::bf16), y(33, c, DType::bf16);
    add_rmsnorm(x.view(), r.view(), w.view(), 1e-6f, sum.view(), y.view(), nullptr, {});
    const auto expected = y.values();

    const DeviceMatrix apart(33, c, DType::bf16), unfused(33, c, DType::bf16);
    add(x.view(), r.view(), apart.view(), {});
    rmsnorm(apart.view(), w.view(), 1e-6f, unfused.view(), nullptr, {});
    expect_same_bits(unfused.values(), expected, "unfused");

    const DeviceMatrix narrow(33, c, DType::bf16, {.offset = 1});
    rmsnorm(apart.view(), w.view(), 1e-6f, narrow.view(), nullptr, {});
    expect_same_bits(narrow.values(), expected, "misaligned");

    Matrix last = apart.view();
    last.data = static_cast<std::byte*>(last.data) + 32 * c * 2;
    last.rows = 1;
    const DeviceMatrix alone(1, c, DType::bf16);
    rmsnorm(last, w.view(), 1e-6f, alone.view(), nullptr, {});
    expect_same_bits(alone.values(), std::span(expected).subspan(static_cast<std::size_t>(32 * c)),
                     "alone");
  }
}

}  // namespace
}  // namespace rose::kernels::gpu

namespace rose::labs {
namespace {

// Every rung is a LayerNorm.
using LayernormLadderGpu = gpu::GpuTest;

TEST_F(LayernormLadderGpu, EveryRungIsALayernorm) {
  for (const Rung<LayernormRows>& rung : layernorm_ladder()) {
    for (const std::int64_t cols : {8, 264, 4096, 8192, 20'000}) {
      if (std::string_view(rung.name) == "registers" && cols > layernorm_held) continue;
      constexpr std::int64_t rows = 3;
      std::vector<float> values = gpu::random_values(rows * cols, 3);
      for (float& value : values) value += 1.0f;
      const auto x = gpu::DeviceMatrix::of(values, rows, cols, kernels::DType::bf16);
      const gpu::DeviceMatrix y(rows, cols, kernels::DType::bf16);
      rung.launch(x.view(), y.view(), {});
      const std::vector<float> in = x.values();
      std::vector<double> expected, bounds;
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::span row(in.data() + r * cols, static_cast<std::size_t>(cols));
        double mean = 0, variance = 0;
        for (const float z : row) mean += double{z} / static_cast<double>(cols);
        for (const float z : row)
          variance += (double{z} - mean) * (double{z} - mean) / static_cast<double>(cols);
        const double inverse = 1 / std::sqrt(variance + double{layernorm_epsilon});
        const double chain = gpu::gamma(static_cast<double>(cols) / 256 + 64);
        const double ratio = 1 + mean * mean / variance;
        for (const float z : row) {
          expected.push_back((double{z} - mean) * inverse);
          bounds.push_back(4 * chain * ratio *
                           (std::abs(expected.back()) + std::abs(mean) * inverse + 1));
        }
      }
      const std::string what = std::string(rung.name) + " of " + std::to_string(cols);
      gpu::expect_close(y.values(), expected, bounds, kernels::DType::bf16, what);
      y.expect_guards(what);
    }
  }
}

}  // namespace
}  // namespace rose::labs
