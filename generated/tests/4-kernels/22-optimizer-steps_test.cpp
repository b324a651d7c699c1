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
#include "rose/kernels/gpu/muon.h"
#include "rose/kernels/gpu/optimizer.h"
#include "rose/kernels/muon.h"

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

namespace rose::kernels {
namespace {

// Work the example, and follow each singular value.
TEST(Muon, ByHand) {
  core::ThreadPool pool(1);
  MuonScratch scratch;
  const MuonStep step{.momentum = 0, .nesterov = false, .rate = 1, .iterations = 1};
  const std::vector<float> g{3, 0, 0, 4};
  std::vector<float> w(4), momentum(4);
  muon(w, g, 1.0f, momentum, 2, 2, step, pool, scratch);
  EXPECT_NEAR(w[0], -1.1932f, 1e-4f);
  EXPECT_NEAR(w[3], -0.9765f, 1e-4f);
  EXPECT_EQ(w[1], 0.0f);
  EXPECT_EQ(momentum, g);
  EXPECT_THROW(muon(w, g, 1.0f, momentum, 2, 3, step, pool, scratch), core::Error);
}

double hadamard(std::size_t i, std::size_t j, double n) {
  return (std::popcount(i & j) % 2 == 0 ? 1.0 : -1.0) / std::sqrt(n);
}

/// The [16, 32] matrix with the singular values s.
std::vector<float> with_singular_values(const std::vector<double>& s) {
  std::vector<float> x(16 * 32);
  for (std::size_t r = 0; r < 16; ++r) {
    for (std::size_t c = 0; c < 32; ++c) {
      double sum = 0;
      for (std::size_t k = 0; k < 16; ++k) sum += hadamard(r, k, 16) * s[k] * hadamard(k, c, 32);
      x[r * 32 + c] = static_cast<float>(sum);
    }
  }
  return x;
}

TEST(Muon, KeepsDirectionsAndForgetsLengths) {
  core::ThreadPool pool(2);
  MuonScratch scratch;
  const MuonStep step;
  std::vector<double> s(16), pushed(16);
  double square = 0;
  for (std::size_t k = 0; k < 16; ++k)
    s[k] = std::exp2(-0.5 * static_cast<double>(k)), square += s[k] * s[k];
  const auto [a, b, c] = step.coefficients;
  for (std::size_t k = 0; k < 16; ++k) {
    double v = s[k] / std::sqrt(square);
    for (int i = 0; i < step.iterations; ++i)
      v = v * (double{a} + v * v * (double{b} + v * v * double{c}));
    pushed[k] = v;
    EXPECT_GT(v, 0.6);
    EXPECT_LT(v, 1.3);
  }
  std::vector<float> wide = with_singular_values(s), tall(wide.size());
  const std::vector<float> want = with_singular_values(pushed);
  for (std::size_t i = 0; i < wide.size(); ++i) tall[i % 32 * 16 + i / 32] = wide[i];
  orthogonalize(wide, 16, 32, step, pool, scratch);
  orthogonalize(tall, 32, 16, step, pool, scratch);
  for (std::size_t i = 0; i < wide.size(); ++i) {
    ASSERT_NEAR(wide[i], want[i], 2e-5f);
    ASSERT_NEAR(tall[i % 32 * 16 + i / 32], want[i], 2e-5f);
  }
}

}  // namespace
}  // namespace rose::kernels

namespace rose::kernels::gpu {
namespace {

// A step follows the CPU's, tall or wide, and is the same twice.
TEST_F(OptimizerGpu, MuonFollowsTheCpu) {
  core::ThreadPool pool(1);
  MuonScratch scratch;
  for (const auto& [rows, cols] :
       {std::pair<std::int64_t, std::int64_t>{64, 96}, {96, 64}, {1, 40}, {130, 77}}) {
    const std::int64_t n = rows * cols;
    const auto g = random_values(n, 12);
    auto w = random_values(n, 11, 0.1f), m = random_values(n, 13, 0.1f);
    const MuonStep step{
        .decay = 0.1f, .rate = 0.05f, .scale = muon_scale(MuonScale::shape, rows, cols)};
    const MuonPlan plan = plan_muon(rows, cols);
    std::array<std::vector<float>, 2> after;
    for (std::vector<float>& result : after) {
      const Buffer gw = Buffer::of(std::span<const float>(w)),
                   gg = Buffer::of(std::span<const float>(g)),
                   gm = Buffer::of(std::span<const float>(m));
      Buffer memory(plan.workspace_bytes);
      memory.poison();
      const auto matrix = [rows = rows, cols = cols](const Buffer& b) {
        return Matrix{.data = b.data(), .dtype = DType::f32, .rows = rows, .cols = cols};
      };
      muon(plan, {.weight = matrix(gw), .gradient = matrix(gg), .first = gm.as<float>()}, step,
           nullptr, memory.workspace(), {});
      synchronize({});
      result = gw.values<float>();
    }
    expect_same_bits(after[0], after[1], "twice");
    const std::vector<float> before = w;
    kernels::muon(w, g, 1.0f, m, rows, cols, step, pool, scratch);
    double error = 0, length = 0;
    for (std::size_t i = 0; i < w.size(); ++i) {
      error += std::pow(double{after[0][i]} - double{w[i]}, 2);
      length += std::pow(double{w[i]} - double{before[i]}, 2);
    }
    EXPECT_LT(std::sqrt(error / length), 0.06) << rows << " x " << cols;
  }
}

}  // namespace
}  // namespace rose::kernels::gpu
