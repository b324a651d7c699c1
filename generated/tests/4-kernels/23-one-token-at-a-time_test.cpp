// Tests of the chapter "One token at a time".

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

#include <fmt/format.h>

#include "labs/gpu/gpu_test.h"
#include "rose/core/error.h"
#include "rose/kernels/gpu/buffer.h"
#include "rose/kernels/gpu/instruments.h"
#include "rose/kernels/gpu/linear.h"
#include "rose/kernels/gpu/norm.h"
#include "rose/kernels/gpu/token_linear.h"

namespace rose::kernels::gpu {
namespace {

// The bits of the separate kernels.
using TokenLinearGpu = GpuTest;

TEST_F(TokenLinearGpu, HasTheBitsOfAddNormAndLinear) {
  if (device_info().capability != 90) GTEST_SKIP() << "the kernel is for Hopper";
  struct Case {
    std::int64_t m, n, k;
    Activation activation;
    bool norm, add, bias;
  };
  constexpr auto none = Activation::none, swiglu = Activation::swiglu;
  for (const Case& c : {Case{1, 4096, 1024, none, true, true, false},
                        {1, 1024, 2048, none, false, false, false},
                        {1, 3072, 1024, swiglu, true, true, false},
                        {1, 1024, 3072, none, false, false, true},
                        {3, 4096, 1024, none, true, false, true},
                        {8, 3072, 1024, swiglu, true, true, true},
                        {5, 776, 256, Activation::gelu_tanh, true, true, true},
                        {2, 8, 128, none, false, false, false},
                        {7, 200, 4224, none, true, true, false}}) {
    const LinearShape shape{
        .m = c.m, .n = c.n, .k = c.k, .bias = c.bias, .activation = c.activation};
    if (!token_linear_fits(shape)) {
      ADD_FAILURE() << c.m << " " << c.n << " " << c.k;
      continue;
    }

    const auto random = [&](std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
      return DeviceMatrix::of(random_values(rows * cols, seed), rows, cols, DType::bf16);
    };
    const DeviceMatrix x = random(c.m, c.k, 1), add = random(c.m, c.k, 2), norm = random(1, c.k, 3),
                       w = random(shape.weight_rows(), c.k, 4),
                       bias = random(1, shape.weight_rows(), 5), sum(c.m, c.k, DType::bf16),
                       normed(c.m, c.k, DType::bf16), want(c.m, c.n, DType::bf16),
                       sum2(c.m, c.k, DType::bf16), got(c.m, c.n, DType::bf16);
    Matrix in = x.view();
    if (c.norm) {
      if (c.add) {
        add_rmsnorm(x.view(), add.view(), norm.view(), 1e-6f, sum.view(), normed.view(), nullptr,
                    {});
      } else {
        rmsnorm(x.view(), norm.view(), 1e-6f, normed.view(), nullptr, {});
      }
      in = normed.view();
    }
    const LinearPlan plan = linear_candidates(shape, false).back();  // the general path
    const Buffer workspace(plan.workspace_bytes);
    const void* const bias_data = c.bias ? bias.view().data : nullptr;
    linear(plan, {.x = in, .w = w.view(), .bias = bias_data, .y = want.view()},
           workspace.workspace(), {});
    TokenLinear fused{.x = x.view(), .w = w.view(), .bias = bias_data, .y = got.view()};
    if (c.norm) fused.norm = norm.view(), fused.eps = 1e-6f;
    if (c.add) fused.add = add.view(), fused.sum = sum2.view();
    token_linear(shape, fused, {});
    synchronize({});
    expect_same_bits(got.values(), want.values(), fmt::format("{} {} {}", c.m, c.n, c.k));
    if (c.add) expect_same_bits(sum2.values(), sum.values(), "the stream");
    got.expect_guards("y");
  }
}

TEST(TokenLinearChecks, NamesTheArgument) {
  alignas(256) static std::byte memory[8192];
  const LinearShape shape{.m = 1, .n = 8, .k = 128};
  const Matrix row{memory, DType::bf16, 1, 128}, w{memory, DType::bf16, 8, 128},
      y{memory, DType::bf16, 1, 8};
  const auto argument_of = [&](const TokenLinear& a) -> std::string {
    try {
      token_linear(shape, a, {});
    } catch (const core::Error& error) {
      return error.argument();
    }
    return "nothing";
  };
  EXPECT_EQ(argument_of({.x = w, .w = w, .y = y}), "x");
  EXPECT_EQ(argument_of({.x = row, .w = row, .y = y}), "w");
  EXPECT_EQ(argument_of({.x = row, .add = row, .sum = row, .w = w, .y = y}), "add");
  EXPECT_EQ(argument_of({.x = row, .add = row, .sum = row, .norm = row, .w = w, .y = y}), "sum");
  EXPECT_FALSE(token_linear_fits({.m = 9, .n = 8, .k = 128}));
  EXPECT_FALSE(token_linear_fits({.m = 1, .n = 12, .k = 128}));
}

// What a layer's products take, fused and apart.
TEST_F(TokenLinearGpu, TimesALayer) {
  if (device_info().capability != 90) GTEST_SKIP() << "the kernel is for Hopper";
  struct Part {
    const char* name;
    LinearShape shape;
    bool norm;
  };
  constexpr int layers = 28;
  for (const std::int64_t m : {1, 8}) {
    const std::vector<Part> parts{{"add, norm, q k v", {.m = m, .n = 4096, .k = 1024}, true},
                                  {"out", {.m = m, .n = 1024, .k = 2048}, false},
                                  {"add, norm, gate up",
                                   {.m = m, .n = 3072, .k = 1024, .activation = Activation::swiglu},
                                   true},
                                  {"down", {.m = m, .n = 1024, .k = 3072}, false}};
    for (const Part& part : parts) {
      const LinearShape& s = part.shape;
      const Buffer weights(static_cast<std::size_t>(layers * s.weight_rows() * s.k) * 2);
      fill_random(weights, DType::bf16, 1);
      const DeviceMatrix x = DeviceMatrix::of(random_values(m * s.k, 1), m, s.k, DType::bf16),
                         norm = DeviceMatrix::of(random_values(s.k, 2), 1, s.k, DType::bf16),
                         sum(m, s.k, DType::bf16), y(m, s.n, DType::bf16);
      const Timing timing = time_launches(
          [&](int layer, Stream stream) {
            TokenLinear a{.x = x.view(),
                          .w = {weights.as<std::uint16_t>() + layer * s.weight_rows() * s.k,
                                DType::bf16, s.weight_rows(), s.k},
                          .y = y.view()};
            if (part.norm) {
              a.add = x.view(), a.sum = sum.view(), a.norm = norm.view();
            }
            token_linear(s, a, stream);
          },
          {.copies = layers, .rounds = 1, .samples = 7, .warmup = 1});
      std::printf("%ld rows, %s: %.2f us\n", static_cast<long>(m), part.name, timing.median_us);
      EXPECT_GT(timing.median_us, 0);
    }
  }
}

}  // namespace
}  // namespace rose::kernels::gpu
