// Tests of the chapter "Optimizer steps".

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
#include "rose/kernels/adamw.h"
#include "rose/kernels/gpu/buffer.h"
#include "rose/kernels/gpu/optimizer.h"

namespace rose::kernels {
namespace {

// Work the example, and cut the gradient anywhere.
TEST(AdamWKernel, FirstStepHasTheLengthOfTheRate) {
  core::ThreadPool pool(1);
  std::vector<float> w{1.0f, 1.0f}, m(2), v(2);
  adamw(w, std::vector<float>{2.0f, -300.0f}, 1.0f, m, v, at_step({.rate = 0.1f}, 1), pool);
  EXPECT_NEAR(w[0], 0.9f, 1e-6f);
  EXPECT_NEAR(w[1], 1.1f, 1e-6f);
  EXPECT_NEAR(m[0], 0.2f, 1e-6f);
  EXPECT_NEAR(v[0], 0.04f, 1e-6f);
}

TEST(GradientNorm, WholeBlocksMayLieAnywhere) {
  core::ThreadPool pool(2);
  std::mt19937 bits(5);
  std::normal_distribution<float> draw;
  std::vector<float> g(7 * 1024 + 300);
  double exact = 0;
  for (float& x : g) x = draw(bits), exact += double{x} * double{x};
  std::vector<double> whole(8), parts(8);
  square_sums(g, whole, pool);
  square_sums(std::span(g).first(3 * 1024), std::span(parts).first(3), pool);
  square_sums(std::span(g).subspan(3 * 1024), std::span(parts).subspan(3), pool);
  EXPECT_EQ(whole, parts);
  EXPECT_NEAR(fold_square_sums(whole), exact, 1e-12 * exact);
  EXPECT_EQ(fold_square_sums({}), 0.0);
}

}  // namespace
}  // namespace rose::kernels

namespace rose::kernels::gpu {
namespace {

// The CPU's bits, clipped and rounded.
using OptimizerGpu = GpuTest;

TEST_F(OptimizerGpu, StepAndNormEqualTheCpus) {
  core::ThreadPool pool(1);
  for (const std::int64_t n : {1, 1000, 1024, 300'001}) {
    const auto g = random_values(n, 2), second = random_values(2100, 6);
    auto w = random_values(n, 1), m = random_values(n, 3, 0.1f), v = random_values(n, 4, 0.1f);
    for (float& x : v) x = std::fabs(x);
    const Buffer gw = Buffer::of(std::span<const float>(w)),
                 gg = Buffer::of(std::span<const float>(g)),
                 gm = Buffer::of(std::span<const float>(m)),
                 gv = Buffer::of(std::span<const float>(v)),
                 gs = Buffer::of(std::span<const float>(second)),
                 copy(static_cast<std::size_t>(n) * 2), result(8);
    const auto row = [](const Buffer& b, std::int64_t count, DType dtype) {
      return Matrix{.data = b.data(), .dtype = dtype, .rows = 1, .cols = count};
    };
    const std::vector<Matrix> gradients{row(gg, n, DType::f32), row(gs, 2100, DType::f32)};
    const Buffer workspace(gradient_norm_workspace(gradients));
    gradient_norm(gradients, 1.0f, result.as<float>(), workspace.workspace(), {});
    const AdamWStep step = at_step({.decay = 0.1f, .rate = 1e-3f}, 7);
    adamw({.weight = row(gw, n, DType::f32),
           .gradient = gradients[0],
           .first = gm.as<float>(),
           .second = gv.as<float>(),
           .copy = row(copy, n, DType::bf16)},
          step, result.as<float>() + 1, {});
    synchronize({});
    std::vector<double> sums(static_cast<std::size_t>((n + 1023) / 1024 + 3));
    square_sums(g, std::span(sums).first(sums.size() - 3), pool);
    square_sums(second, std::span(sums).last(3), pool);
    const auto norm = static_cast<float>(std::sqrt(fold_square_sums(sums)));
    const auto on_device = result.values<float>();
    EXPECT_EQ(on_device[0], norm);
    EXPECT_EQ(on_device[1], norm > 1.0f ? 1.0f / norm : 1.0f);
    kernels::adamw(w, g, on_device[1], m, v, step, pool);
    expect_same_bits(gw.values<float>(), w, "weights");
    expect_same_bits(gm.values<float>(), m, "first moments");
    expect_same_bits(gv.values<float>(), v, "second moments");
    const auto copied = copy.values<bf16>();
    for (std::size_t i = 0; i < w.size(); ++i) ASSERT_EQ(copied[i], to_bf16(w[i]));
  }
}

}  // namespace
}  // namespace rose::kernels::gpu
