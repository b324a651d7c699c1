// Tests of the chapter "The linear layer on tensor cores".

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
#include "rose/kernels/gpu/instruments.h"
#include "rose/kernels/gpu/linear.h"
#include "rose/kernels/gpu/linear_paths.h"

namespace rose::kernels::gpu {
namespace {

// What a linear layer refuses.
TEST(Linear, RefusesWhatDoesNotFitByName) {
  const auto refused = [](auto&& call) {
    try {
      call();
    } catch (const core::Error& error) {
      return error.argument();
    }
    return std::string("nothing");
  };
  EXPECT_EQ(refused([] { plan_linear({.m = -1, .n = 2, .k = 2}); }), "shape.m");
  EXPECT_EQ(refused([] { plan_linear({.m = 1, .n = 2, .k = 2, .in = DType::q8_0}); }), "shape.in");
  EXPECT_EQ(
      refused([] { plan_linear({.m = 1, .n = 2, .k = 2, .in = DType::f32, .out = DType::bf16}); }),
      "shape.out");
  const LinearPlan nothing = plan_linear({.m = 0, .n = 8, .k = 8});
  EXPECT_EQ(nothing.path, LinearPath::none);
  alignas(16) std::array<std::uint16_t, 64> memory{};
  const Matrix w{.data = memory.data(), .rows = 8, .cols = 8};
  linear(nothing, {.x = {.rows = 0, .cols = 8}, .w = w, .y = {.rows = 0, .cols = 8}}, {}, {});
  EXPECT_EQ(refused([&] {
              linear(nothing, {.x = {.rows = 0, .cols = 7}, .w = w, .y = {.rows = 0, .cols = 8}},
                     {}, {});
            }),
            "x");
  const LinearPlan plan{.shape = {.m = 1, .n = 8, .k = 8, .bias = true},
                        .path = LinearPath::general};
  const Matrix row{.data = memory.data(), .rows = 1, .cols = 8};
  EXPECT_EQ(refused([&] { linear(plan, {.x = row, .w = w, .y = row}, {}, {}); }), "bias");
  Matrix crooked = w;
  crooked.data = memory.data() + 1;
  EXPECT_EQ(refused([&] {
              linear(plan, {.x = row, .w = crooked, .bias = memory.data(), .y = row}, {}, {});
            }),
            "w");
  EXPECT_EQ(refused([&] {
              linear(plan, {.x = row, .w = w, .bias = memory.data(), .scale = 2, .y = row}, {}, {});
            }),
            "scale");
}

TEST(Linear, PlansAreMadeOnce) {
  LinearPlans plans(false);
  const LinearShape shape{.m = 3, .n = 4, .k = 5, .aligned = false};
  const LinearPlan* const first = &plans(shape);
  plans({.m = 4, .n = 4, .k = 5, .aligned = false});
  EXPECT_EQ(&plans(shape), first);
  EXPECT_EQ(first->path, LinearPath::general);
}

TEST(Linear, SwigluNeedsRoomWhereItIsNotFused) {
  const LinearShape shape{
      .m = 3, .n = 5, .k = 7, .activation = Activation::swiglu, .aligned = false};
  const std::vector<LinearPlan> plans = linear_candidates(shape, false);
  EXPECT_EQ(plans.back().path, LinearPath::general);
  EXPECT_EQ(plans.back().workspace_bytes, 3u * 10 * 2);
}

// A row's bits do not depend on M, N or its neighbours, whatever the path.
struct LinearCase {
  LinearShape shape;
  std::vector<float> x, w, bias, residual;

  explicit LinearCase(const LinearShape& s)
      : shape(s),
        x(random_values(s.m * s.k, 1)),
        w(random_values(s.weight_rows() * s.k, 2)),
        bias(random_values(s.weight_rows(), 3)),
        residual(random_values(s.m * s.n, 4)) {}

  std::vector<float> run(const LinearPlan& plan) const {
    const DeviceMatrix dx = DeviceMatrix::of(x, shape.m, shape.k, shape.in);
    const DeviceMatrix dw = DeviceMatrix::of(w, shape.weight_rows(), shape.k, shape.in);
    const DeviceMatrix db = DeviceMatrix::of(bias, 1, shape.weight_rows(), shape.in);
    const DeviceMatrix dr = DeviceMatrix::of(residual, shape.m, shape.n, shape.out);
    const DeviceMatrix y(shape.m, shape.n, shape.out, {.gap = 8});
    const Buffer workspace(plan.workspace_bytes);
    linear(plan,
           {.x = dx.view(),
            .w = dw.view(),
            .bias = db.view().data,
            .scale = shape.scaled ? 0.37f : 1.0f,
            .residual = dr.view(),
            .y = y.view()},
           workspace.workspace(), {});
    y.expect_guards(plan.describe());
    return y.values();
  }
};

TEST_F(GpuTest, LinearHasOneResultOnEveryPath) {
  for (const Activation activation :
       {Activation::none, Activation::gelu_tanh, Activation::gelu_exact, Activation::silu,
        Activation::swiglu}) {
    for (const bool more : {false, true}) {
      for (const std::int64_t m : {1, 17, 64, 130}) {
        const LinearCase one({.m = m,
                              .n = 200,
                              .k = 576,
                              .bias = more,
                              .activation = activation,
                              .scaled = more,
                              .residual = more});
        const std::vector<LinearPlan> plans = linear_candidates(one.shape, false);
        const std::vector<float> expected = one.run(plans.back());
        for (const LinearPlan& plan : plans) {
          expect_same_bits(one.run(plan), expected,
                           plan.describe() + ", M " + std::to_string(m) + ", activation " +
                               std::to_string(static_cast<int>(activation)) +
                               (more ? ", all epilogues" : ""));
        }
        expect_same_bits(one.run(plan_linear(one.shape)), expected, "the plan by rules");
      }
    }
  }
}

// The same row alone and in company.
TEST_F(GpuTest, LinearRowsDoNotSeeEachOther) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    for (const std::int64_t k : {64, 1000, 3072}) {
      LinearCase all({.m = 200, .n = 96, .k = k, .in = dtype, .out = dtype});
      std::fill_n(all.x.begin() + 3 * k, k,
                  std::numeric_limits<float>::quiet_NaN());  // a neighbour's accident
      for (const LinearPlan& plan : linear_candidates(all.shape, false)) {
        const std::vector<float> together = all.run(plan);
        for (const std::int64_t row : {0, 2, 4, 199}) {
          LinearCase alone({.m = 1, .n = 96, .k = k, .in = dtype, .out = dtype});
          std::copy_n(all.x.begin() + row * k, k, alone.x.begin());
          alone.w = all.w;
          const std::vector<float> y = alone.run(plan_linear(alone.shape));
          expect_same_bits(std::span(together).subspan(static_cast<std::size_t>(row * 96), 96), y,
                           plan.describe() + ", row " + std::to_string(row));
        }
      }
    }
  }
}

TEST_F(GpuTest, LinearColumnsDoNotSeeEachOther) {
  const LinearCase wide({.m = 5, .n = 1000, .k = 512});
  LinearCase narrow({.m = 5, .n = 24, .k = 512});
  narrow.x = wide.x;
  std::copy_n(wide.w.begin() + 100 * 512, 24 * 512, narrow.w.begin());
  const std::vector<float> y = wide.run(plan_linear(wide.shape)),
                           z = narrow.run(plan_linear(narrow.shape));
  for (std::size_t row = 0; row < 5; ++row) {
    expect_same_bits(std::span(y).subspan(row * 1000 + 100, 24), std::span(z).subspan(row * 24, 24),
                     "columns");
  }
}

// The head of a large model, in every variant.
TEST_F(GpuTest, LinearHeadOfALargeModelInEveryVariant) {
  for (const std::int64_t m : {65, 96, 128, 129, 160, 192, 224, 257}) {
    const LinearShape shape{.m = m, .n = 151'936, .k = 1024, .out = DType::f32};
    std::vector<LinearPlan> plans = linear_candidates(shape, m == 96);
    std::erase_if(plans, [](const LinearPlan& p) { return p.path != LinearPath::small; });
    if (linear_paths::small_fits(shape)) {
      EXPECT_EQ(std::ssize(plans), m <= 256 ? linear_paths::small_variants : 0);
    }
    for (const LinearPlan& plan : plans) {
      SCOPED_TRACE(plan.describe());
      EXPECT_NO_THROW(time_linear(shape, std::span(&plan, 1), 3));
    }
  }
}

// In fp32 each output is one ascending chain.
TEST_F(GpuTest, LinearInFp32IsOneAscendingChain) {
  for (const std::int64_t m : {3, 70, 1500}) {
    const LinearCase one(
        {.m = m, .n = 1500, .k = 129, .in = DType::f32, .out = DType::f32, .aligned = false});
    const std::vector<float> y = one.run(plan_linear(one.shape));
    std::vector<float> expected;
    std::vector<float> some;
    for (std::int64_t r = 0; r < m; r += 7) {
      for (std::int64_t c = 0; c < one.shape.n; c += 31) {
        float sum = 0;
        for (std::int64_t k = 0; k < one.shape.k; ++k) {
          sum = std::fma(one.x[static_cast<std::size_t>(r * one.shape.k + k)],
                         one.w[static_cast<std::size_t>(c * one.shape.k + k)], sum);
        }
        expected.push_back(sum);
        some.push_back(y[static_cast<std::size_t>(r * one.shape.n + c)]);
      }
    }
    expect_same_bits(some, expected, "M " + std::to_string(m));
  }
}

}  // namespace
}  // namespace rose::kernels::gpu
