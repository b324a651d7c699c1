// Tests of the chapter "Packed and grouped weights".

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
#include "rose/core/rng.h"
#include "rose/kernels/gpu/linear.h"
#include "rose/kernels/gpu/linear_packed.h"
#include "rose/kernels/packed.h"
#include "rose/kernels/packed_reference.h"

namespace rose::kernels::gpu {
namespace {

// Pack a weight on the host.

/// A weight packed on the host, with the values it unpacks to.
struct Packed {
  std::vector<std::uint8_t> bytes;
  std::vector<float> scales, values;
};

Packed pack_weight(std::span<const float> w, std::int64_t rows, std::int64_t cols,
                   WeightFormat format, std::int64_t group) {
  Packed p;
  const std::int64_t size = group == 0 ? cols : group, per_row = (cols + size - 1) / size;
  const float most = format == WeightFormat::int8   ? 127.0f
                     : format == WeightFormat::int4 ? 7.0f
                                                    : 448.0f;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t g = 0; g < per_row; ++g) {
      float largest = 1e-10f;
      for (std::int64_t k = g * size; k < std::min(cols, (g + 1) * size); ++k) {
        largest = std::max(largest, std::fabs(w[static_cast<std::size_t>(r * cols + k)]));
      }
      p.scales.push_back(largest / most);
    }
    for (std::int64_t k = 0; k < cols; ++k) {
      const float scale = p.scales[static_cast<std::size_t>(r * per_row + k / size)];
      const float x = w[static_cast<std::size_t>(r * cols + k)] / scale;
      float q = std::nearbyint(x);
      if (format == WeightFormat::fp8_e4m3) {
        const f8_e4m3 stored = to_f8_e4m3(x);
        p.bytes.push_back(stored.bits);
        q = to_float(stored);
      } else if (format == WeightFormat::int8) {
        p.bytes.push_back(static_cast<std::uint8_t>(static_cast<std::int8_t>(q)));
      } else if (k % 2 == 0) {
        p.bytes.push_back(static_cast<std::uint8_t>(static_cast<int>(q) + 8));
      } else {
        p.bytes.back() = static_cast<std::uint8_t>(p.bytes.back() | (static_cast<int>(q) + 8) << 4);
      }
      p.values.push_back(to_float(to_bf16(q * scale)));
    }
  }
  return p;
}

}  // namespace
}  // namespace rose::kernels::gpu

namespace rose::kernels {
namespace {

// A packed matrix is near to what it was.
TEST(PackedMatrix, IsNearToWhatItWas) {
  constexpr std::int64_t rows = 5, cols = 160, group = 64;  // the last group is shorter
  std::vector<float> w(static_cast<std::size_t>(rows * cols));
  core::Rng rng(3, 1);
  for (float& value : w) value = rng.normal();
  std::fill_n(w.begin(), group, 0.0f);
  const MatrixView view{.data = w.data(), .dtype = DType::f32, .rows = rows, .cols = cols};
  for (const auto format :
       {gpu::WeightFormat::int8, gpu::WeightFormat::int4, gpu::WeightFormat::fp8_e4m3}) {
    const PackedMatrix packed = pack_matrix(view, format, group, core::default_pool());
    EXPECT_EQ(packed.groups(), 3);
    double error = 0.0, plain = 0.0;
    for (std::int64_t r = 0; r < rows; ++r) {
      std::vector<float> back(static_cast<std::size_t>(cols));
      unpack_row(packed, r, back.data());
      for (std::int64_t k = 0; k < cols; ++k) {
        const float was = w[static_cast<std::size_t>(r * cols + k)],
                    is = back[static_cast<std::size_t>(k)];
        EXPECT_EQ(is, to_float(to_bf16(is)));
        error += (was - is) * (was - is);
        const auto first = w.begin() + r * cols + k / group * group;
        const auto last = first + std::min(group, cols - k / group * group);
        const float largest = std::abs(*std::max_element(
            first, last, [](float a, float b) { return std::abs(a) < std::abs(b); }));
        const float step = largest == 0.0f ? 1.0f : largest / 7.0f;
        const float rounded = std::nearbyint(was / step) * step;
        plain += (was - rounded) * (was - rounded);
        const bool whole = format == gpu::WeightFormat::int8;
        const float near = whole ? largest / 127.0f : std::abs(was) / 14.0f + largest / 448.0f;
        EXPECT_TRUE(format == gpu::WeightFormat::int4 || std::abs(was - is) <= near);
      }
    }
    EXPECT_LT(error, plain);
  }
  w[7] = std::numeric_limits<float>::infinity();
  EXPECT_THROW(pack_matrix(view, gpu::WeightFormat::int8, 0, core::default_pool()), core::Error);
  EXPECT_FALSE(can_pack(gpu::WeightFormat::int4, 48, 0));
}

// The twins are near to double precision, and leave other rows alone.
TEST(PackedReference, IsNearToDoublePrecision) {
  constexpr std::int64_t m = 3, n = 7, k = 96;
  std::vector<float> x = gpu::random_values(m * k, 1), w = gpu::random_values(n * k, 2), y(m * n);
  for (float& value : x) value = reference::as_bf16(value);
  const MatrixView view{.data = w.data(), .dtype = DType::f32, .rows = n, .cols = k};
  for (const auto format :
       {gpu::WeightFormat::int8, gpu::WeightFormat::int4, gpu::WeightFormat::fp8_e4m3}) {
    const PackedMatrix packed = pack_matrix(view, format, 32, core::default_pool());
    reference::linear_packed(x, packed, {}, y);
    for (std::size_t i = 0; i < y.size(); ++i) {
      std::vector<float> row(k);
      unpack_row(packed, static_cast<std::int64_t>(i) % n, row.data());
      double sum = 0, size = 0;
      for (std::size_t j = 0; j < row.size(); ++j) {
        const double product = double{x[i / n * k + j]} * double{row[j]};
        sum += product, size += std::abs(product);
      }
      EXPECT_NEAR(y[i], sum, 4 * gpu::gamma(k) * size + 0x1p-8 * std::abs(sum));
    }
  }
}

TEST(PackedReference, AdaptersAddToTheirRowsOnly) {
  // Rank 1, by hand: x A^T = 1 + 2 = 3, times B = (1, -1), times 0.5, onto 10 and 20.
  const std::vector<float> x{1, 2, 1, 2, 4, 8}, a{1, 1}, b{1, -1};
  std::vector<float> y{10, 20, 10, 20, 10, 20};
  const std::vector<reference::AdapterGroup> groups{
      {.rows = 1}, {.rows = 1, .a = a, .b = b, .scale = 0.5f}, {.rows = 1}};
  reference::add_adapters(x, 2, groups, y, 2);
  EXPECT_EQ(y, (std::vector<float>{10, 20, 11.5, 18.5, 10, 20}));
}

}  // namespace
}  // namespace rose::kernels

namespace rose::kernels::gpu {
namespace {

// The example by hand, and what is refused.
TEST(LinearPacked, TheExampleByHand) {
  const Packed p = pack_weight(std::array{1.0f, -2.0f, 0.5f, 3.0f}, 1, 4, WeightFormat::int4, 0);
  EXPECT_EQ(p.bytes, (std::vector<std::uint8_t>{0x3a, 0xf9}));
  EXPECT_EQ(p.values[0], 0.85546875f);
  EXPECT_EQ(p.values[3], 3.0f);
}

TEST(LinearPacked, RefusesWhatDoesNotFitByName) {
  const auto refused = [](auto&& call) {
    try {
      call();
    } catch (const core::Error& error) {
      return error.argument();
    }
    return std::string("nothing");
  };
  alignas(16) std::array<std::uint16_t, 256> memory{};
  const Matrix x{.data = memory.data(), .rows = 1, .cols = 32},
      y{.data = memory.data(), .rows = 1, .cols = 2};
  const std::array<float, 2> scales{1, 1};
  PackedWeight w{.data = memory.data(), .rows = 2, .cols = 32, .scales = scales.data()};
  w.cols = 24;
  EXPECT_EQ(refused([&] { linear_packed(x, w, nullptr, y, {}); }), "w");
  w.cols = 32;
  w.group = 10;
  EXPECT_EQ(refused([&] { linear_packed(x, w, nullptr, y, {}); }), "w.group");
  w.group = 0;
  w.scales = nullptr;
  EXPECT_EQ(refused([&] { linear_packed(x, w, nullptr, y, {}); }), "w.scales");
  w.rows = 0;
  linear_packed({.data = memory.data(), .rows = 3, .cols = 32}, w, nullptr, {.rows = 3, .cols = 0},
                {});
  EXPECT_EQ(refused([&] { add_adapters(x, {.count = 1, .rank = 3}, y, {}, {}); }), "adapters.rank");
  EXPECT_EQ(refused([&] { add_adapters(x, {.count = 1, .rank = 8}, y, {}, {}); }), "adapters.a");
  add_adapters(x, {}, y, {}, {});  // no adapters: nothing to do
}

// A packed weight gives the bits of the unpacked one.
TEST_F(GpuTest, PackedWeightsGiveTheBitsOfTheUnpacked) {
  for (const WeightFormat format :
       {WeightFormat::int8, WeightFormat::int4, WeightFormat::fp8_e4m3}) {
    for (const std::int64_t m : {1, 16, 17, 100}) {
      for (const std::int64_t group : {0, 32, 128}) {
        const std::int64_t n = 75, k = 416;
        const std::vector<float> x = random_values(m * k, 1), bias = random_values(n, 3);
        const Packed packed = pack_weight(random_values(n * k, 2), n, k, format, group);
        const DeviceMatrix dx = DeviceMatrix::of(x, m, k, DType::bf16, {.gap = 8}),
                           db = DeviceMatrix::of(bias, 1, n, DType::bf16);
        const Buffer data = Buffer::of(std::span<const std::uint8_t>(packed.bytes));
        const Buffer scales = Buffer::of(std::span<const float>(packed.scales));
        const DeviceMatrix y(m, n, DType::bf16, {.gap = 3}), expected(m, n, DType::bf16);
        linear_packed(dx.view(),
                      {.data = data.data(),
                       .format = format,
                       .rows = n,
                       .cols = k,
                       .scales = scales.as<float>(),
                       .group = group},
                      db.view().data, y.view(), {});
        const DeviceMatrix w = DeviceMatrix::of(packed.values, n, k, DType::bf16);
        const LinearShape shape{.m = m, .n = n, .k = k, .bias = true};
        linear(plan_linear(shape),
               {.x = dx.view(), .w = w.view(), .bias = db.view().data, .y = expected.view()}, {},
               {});
        expect_same_bits(y.values(), expected.values(),
                         "format " + std::to_string(static_cast<int>(format)) + ", M " +
                             std::to_string(m) + ", group " + std::to_string(group));
        y.expect_guards("y");
      }
    }
  }
}

// Each row gets its adapter, whoever its neighbours are.
TEST_F(GpuTest, AdaptersGiveTheBitsOfTwoLinearLayers) {
  const std::int64_t m = 90, k = 200, n = 136, rank = 24;
  const std::vector<std::int32_t> offsets{0,  1, 40, 40,
                                          70, 90};  // one row, many, none, none of ours, the rest
  const std::int64_t groups = 5;
  const DeviceMatrix x = DeviceMatrix::of(random_values(m * k, 1), m, k, DType::bf16);
  const std::vector<float> start = random_values(m * n, 2);
  const DeviceMatrix y = DeviceMatrix::of(start, m, n, DType::bf16, {.gap = 5});
  std::vector<DeviceMatrix> a, b;
  std::vector<const void*> a_at, b_at;
  std::vector<float> scales;
  for (std::int64_t g = 0; g < groups; ++g) {
    const auto seed = static_cast<std::uint64_t>(10 + g);
    a.push_back(DeviceMatrix::of(random_values(rank * k, seed), rank, k, DType::bf16));
    b.push_back(DeviceMatrix::of(random_values(n * rank, seed + 100), n, rank, DType::bf16));
    a_at.push_back(g == 3 ? nullptr : a.back().view().data);
    b_at.push_back(g == 3 ? nullptr : b.back().view().data);
    scales.push_back(0.5f + 0.3f * static_cast<float>(g));
  }
  const Buffer da = Buffer::of(std::span<const void* const>(a_at)),
               db = Buffer::of(std::span<const void* const>(b_at));
  const Buffer ds = Buffer::of(std::span<const float>(scales)),
               doff = Buffer::of(std::span<const std::int32_t>(offsets));
  const Buffer workspace(adapters_workspace(m, rank));
  add_adapters(x.view(),
               {.a = da.as<const void*>(),
                .b = db.as<const void*>(),
                .scales = ds.as<float>(),
                .offsets = doff.as<std::int32_t>(),
                .count = groups,
                .rank = rank},
               y.view(), workspace.workspace(), {});
  const std::vector<float> actual = y.values();
  y.expect_guards("y");
  for (std::size_t g = 0; g < 5; ++g) {
    const std::int64_t first = offsets[g], rows = offsets[g + 1] - first;
    std::vector<float> expected;
    const std::span<const float> before = std::span(start).subspan(
        static_cast<std::size_t>(first * n), static_cast<std::size_t>(rows * n));
    if (a_at[g] == nullptr) {
      for (const float value : before) expected.push_back(rounded(value, DType::bf16));
    } else {
      Matrix part = x.view();
      part.data = static_cast<std::byte*>(part.data) + first * k * 2;
      part.rows = rows;
      const DeviceMatrix t(rows, rank, DType::bf16),
          residual = DeviceMatrix::of(before, rows, n, DType::bf16), out(rows, n, DType::bf16);
      linear(plan_linear({.m = rows, .n = rank, .k = k}),
             {.x = part, .w = a[g].view(), .y = t.view()}, {}, {});
      const LinearPlan plan{
          .shape = {.m = rows, .n = n, .k = rank, .scaled = true, .residual = true},
          .path = rows > 0 ? LinearPath::general : LinearPath::none};
      linear(plan,
             {.x = t.view(),
              .w = b[g].view(),
              .scale = scales[g],
              .residual = residual.view(),
              .y = out.view()},
             {}, {});
      expected = out.values();
    }
    expect_same_bits(std::span(actual).subspan(static_cast<std::size_t>(first * n),
                                               static_cast<std::size_t>(rows * n)),
                     expected, "group " + std::to_string(g));
  }
}

}  // namespace
}  // namespace rose::kernels::gpu
