// Tests of the chapter "Elementwise kernels and wide access".

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
#include "labs/gpu/rows_bench.h"
#include "labs/gpu/swiglu_ladder.h"
#include "rose/core/error.h"
#include "rose/core/parallel.h"
#include "rose/core/rng.h"
#include "rose/kernels/activation_backward.h"
#include "rose/kernels/cast.h"
#include "rose/kernels/gpu/buffer.h"
#include "rose/kernels/gpu/elementwise.h"

namespace rose::labs {
namespace {

// Count the bytes of a ladder, and refuse by name.
TEST(SwigluLadder, FusingSavesFourBytesOfTen) {
  // read g, write s; read s and u, write y: five accesses of two bytes; fused three.
  EXPECT_EQ(swiglu_apart_bytes, 2 * (1 + 1 + 2 + 1));
  EXPECT_EQ(swiglu_fused_bytes, 2 * (2 + 1));
  EXPECT_THROW(check_swiglu(-8, 8), core::Error);
  EXPECT_THROW(check_swiglu(12, 8), core::Error);
  EXPECT_NO_THROW(check_swiglu(0, 8));
}

// Every rung has the same bits.
using SwigluLadderGpu = gpu::GpuTest;

TEST_F(SwigluLadderGpu, EveryRungHasTheSameBits) {
  for (const std::int64_t count : {0, 8, 1000, 300'008}) {
    const auto gate =
        gpu::DeviceMatrix::of(gpu::random_values(count, 1, 4), 1, count, kernels::DType::bf16);
    const auto up =
        gpu::DeviceMatrix::of(gpu::random_values(count, 2), 1, count, kernels::DType::bf16);
    std::vector<float> first;
    for (const Rung<Swiglu>& rung : swiglu_ladder()) {
      const gpu::DeviceMatrix between(1, count, kernels::DType::bf16),
          out(1, count, kernels::DType::bf16);
      rung.launch(gate.view().data, up.view().data, between.view().data, out.view().data, count,
                  {});
      const std::vector<float> y = out.values();
      if (first.empty()) first = y;
      gpu::expect_same_bits(y, first, rung.name);
      out.expect_guards(rung.name);
    }
    const std::vector<float> g = gate.values(), u = up.values();
    for (std::size_t i = 0; i < first.size(); ++i) {
      const double z = g[i], y = z / (1 + std::exp(-z)) * double{u[i]};
      ASSERT_NEAR(first[i], y, 0x1p-7 * std::abs(y) + 1e-37) << i;
    }
  }
}

}  // namespace
}  // namespace rose::labs

namespace rose::kernels {
namespace {

// Round a quarter of the way up one time in four, whatever the threads.
TEST(Cast, ChanceIsRightAndRepeats) {
  core::ThreadPool one(1), three(3);
  const std::vector<float> x(100'000, 1.0f + 1.0f / 512.0f);
  std::vector<bf16> a(x.size()), b(x.size());
  const RoundingKey key{.seed = 5, .step = 7, .parameter = 3, .first_element = 11};
  to_bf16_stochastic(x, key, a, one);
  to_bf16_stochastic(x, key, b, three);
  EXPECT_EQ(a, b);
  const auto up = std::count(a.begin(), a.end(), to_bf16(1.0f + 1.0f / 128.0f));
  EXPECT_EQ(up + std::count(a.begin(), a.end(), to_bf16(1.0f)), 100'000);
  EXPECT_NEAR(static_cast<double>(up), 25'000.0, 5 * std::sqrt(100'000 * 0.25 * 0.75));

  // A shard that begins at element 500 of the whole rounds as the whole does.
  std::vector<bf16> shard(1000);
  to_bf16_stochastic(std::span(x).first(1000),
                     {.seed = 5, .step = 7, .parameter = 3, .first_element = 11 + 500}, shard, one);
  EXPECT_TRUE(std::equal(shard.begin(), shard.end(), a.begin() + 500));
  to_bf16_stochastic(x, {.seed = 5, .step = 8, .parameter = 3, .first_element = 11}, b, one);
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace rose::kernels

namespace rose::kernels::gpu {
namespace {

// Name the argument that does not fit.
TEST(Elementwise, RefusesWhatDoesNotFit) {
  alignas(16) std::array<std::byte, 256> memory{};
  const auto matrix = [&](std::int64_t rows, std::int64_t cols, DType dtype) {
    return Matrix{.data = memory.data(), .dtype = dtype, .rows = rows, .cols = cols};
  };
  const auto argument_of = [](auto&& call) {
    try {
      call();
    } catch (const core::Error& error) {
      return error.argument();
    }
    return std::string();
  };
  const Matrix x = matrix(2, 8, DType::bf16);
  EXPECT_EQ(argument_of([&] { add(x, matrix(2, 9, DType::bf16), x, {}); }), "b");
  EXPECT_EQ(argument_of([&] { add(x, x, matrix(2, 8, DType::f32), {}); }), "out");
  EXPECT_EQ(argument_of([&] { gelu(matrix(2, 8, DType::u8), x, Gelu::exact, {}); }), "x");
  EXPECT_EQ(argument_of([&] { silu(x, matrix(2, 8, DType::f16), {}); }), "out");
  EXPECT_EQ(argument_of([&] { silu_backward(x, matrix(3, 8, DType::bf16), x, {}); }), "dy");
  EXPECT_EQ(argument_of([&] { cast_stochastic(x, {}, x, {}); }), "x");
  EXPECT_NO_THROW(
      add(matrix(0, 8, DType::f32), matrix(0, 8, DType::f32), matrix(0, 8, DType::f32), {}));
}

// Narrow is wide, in place is out of place, limits are limits.
using ElementwiseGpu = GpuTest;

TEST_F(ElementwiseGpu, NarrowAccessAndInPlaceHaveTheSameBits) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const auto gate = random_values(37 * 1536, 1, 4), up = random_values(37 * 1536, 2);
    const auto product = [&](Layout layout, bool in_place) {
      const auto g = DeviceMatrix::of(gate, 37, 1536, dtype, layout);
      const auto u = DeviceMatrix::of(up, 37, 1536, dtype, layout);
      const DeviceMatrix out(37, 1536, dtype, layout);
      silu_multiply(g.view(), u.view(), in_place ? g.view() : out.view(), {});
      return in_place ? g.values() : out.values();
    };
    const auto expected = product({}, false);
    expect_same_bits(product({.offset = 1}, false), expected, "misaligned");
    expect_same_bits(product({.gap = 3}, false), expected, "odd stride");
    expect_same_bits(product({.gap = 1536}, false), expected, "half of a wider matrix");
    expect_same_bits(product({}, true), expected, "in place");
  }
}

TEST_F(ElementwiseGpu, LimitsAndNaN) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> z{inf, -100.0f, 0.0f, -0.0f, 100.0f, std::nanf("")};
  const auto x = DeviceMatrix::of(z, 1, 6, DType::f32);
  const auto one = DeviceMatrix::of(std::vector<float>(6, 1.0f), 1, 6, DType::f32);
  const DeviceMatrix out(1, 6, DType::f32);
  silu_multiply(x.view(), one.view(), out.view(), {});
  const auto y = out.values();
  silu(x.view(), out.view(), {});
  expect_same_bits(out.values(), y, "silu alone");
  silu_backward(x.view(), one.view(), out.view(), {});
  const auto slope = out.values();
  EXPECT_NEAR(slope[1], 0.0f, 1e-30f);
  EXPECT_EQ(slope[2], 0.5f);
  EXPECT_EQ(slope[4], 1.0f);
  EXPECT_TRUE(std::isnan(slope[5]));
  EXPECT_EQ(y[0], inf);
  EXPECT_NEAR(y[1], 0.0f, 1e-30f);
  EXPECT_EQ(y[2], 0.0f);
  EXPECT_TRUE(std::signbit(y[3]));
  EXPECT_EQ(y[4], 100.0f);
  EXPECT_TRUE(std::isnan(y[5]));
}

}  // namespace
}  // namespace rose::kernels::gpu
