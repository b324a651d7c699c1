// Tests of the chapter "The decoder-only transformer".

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

#include <hwy/targets.h>

#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/kernels/activation.h"
#include "rose/kernels/elementary.h"
#include "rose/kernels/embedding.h"
#include "rose/kernels/lanes-inl.h"
#include "rose/kernels/linear.h"
#include "rose/kernels/logprob.h"
#include "rose/kernels/norm.h"
#include "rose/kernels/numerics.h"
#include "rose/kernels/quant.h"
#include "rose/kernels/reference.h"
#include "rose/kernels/targets.h"

namespace rose::kernels {
namespace {

// Hold exp and tanh against double precision.

/// Distance in units in the last place of the correctly rounded answer.
double ulps(float got, double want) {
  const float rounded = static_cast<float>(want);
  if (got == rounded) return 0.0;
  const double unit = std::ldexp(1.0, std::max(std::ilogb(rounded), -126) - 23);
  return std::fabs(static_cast<double>(got) - want) / unit;
}

TEST(Elementary, ExpAndTanhAreAccurateEverywhere) {
  double worst_exp = 0.0, worst_tanh = 0.0;
  for (float x = -104.5f; x < 88.7f; x += 0.00037f)
    worst_exp = std::max(worst_exp, ulps(exp(x), std::exp(double{x})));
  for (float x = -10.0f; x < 10.0f; x += 0.000037f)
    worst_tanh = std::max(worst_tanh, ulps(tanh(x), std::tanh(double{x})));
  EXPECT_LT(worst_exp, 1.5);
  EXPECT_LT(worst_tanh, 2.0);
  constexpr float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exp(0.0f), 1.0f);
  EXPECT_EQ(exp(-inf), 0.0f);
  EXPECT_EQ(exp(inf), inf);
  EXPECT_EQ(exp(89.0f), inf);
  EXPECT_TRUE(std::isnan(exp(std::nanf(""))));
  EXPECT_EQ(tanh(inf), 1.0f);
  EXPECT_EQ(tanh(-50.0f), -1.0f);
  EXPECT_TRUE(std::signbit(tanh(-0.0f)));
}

// Draw numbers, and force an instruction set.
std::vector<float> normals(std::size_t n, std::uint64_t seed, float scale = 1.0f) {
  core::Rng rng(seed);
  std::vector<float> x(n);
  for (float& v : x) v = rng.normal() * scale;
  return x;
}

/// Runs f once per instruction set that this processor has, the portable one included.
template <class F>
void on_every_target(F&& f) {
  std::int64_t left = hwy::SupportedTargets();
  while (left != 0) {
    const std::int64_t target = left & -left;
    left &= left - 1;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    f();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

// The product has the written-down order on every processor.
TEST(Linear, HasTheBitsOfItsPlainTwinWhateverTheRowsThreadsAndProcessor) {
  core::ThreadPool one(1), three(3);
  for (const std::int64_t k : {1, 7, 16, 33, 576, 1031, 2500}) {
    const std::int64_t n = 13, m = 29;
    const auto size = [](std::int64_t a, std::int64_t b) {
      return static_cast<std::size_t>(a * b);
    };
    const std::vector<float> x = normals(size(m, k), 1), w = normals(size(n, k), 2),
                             bias = normals(size(n, 1), 3);
    const MatrixView view{w.data(), DType::f32, n, k};
    std::vector<float> want(size(m, n));
    for (std::int64_t r = 0; r < m; ++r) {
      for (std::int64_t c = 0; c < n; ++c) {
        want[size(r, n) + static_cast<std::size_t>(c)] =
            reference::dot(std::span(x).subspan(size(r, k), size(1, k)),
                           std::span(w).subspan(size(c, k), size(1, k))) +
            bias[static_cast<std::size_t>(c)];
      }
    }
    on_every_target([&] {
      for (core::ThreadPool* pool : {&one, &three}) {
        std::vector<float> y(size(m, n), std::nanf(""));
        linear(x, m, view, bias.data(), y, *pool);
        ASSERT_EQ(y, want);
        for (std::int64_t r = 0; r < m; ++r) {  // each row alone
          std::vector<float> alone(size(1, n), std::nanf(""));
          linear(std::span(x).subspan(size(r, k), size(1, k)), 1, view, bias.data(), alone, *pool);
          ASSERT_TRUE(std::equal(alone.begin(), alone.end(), want.begin() + r * n));
        }
      }
    });
  }
}

// Stored types are decoded exactly and summed in fp32.
TEST(Linear, SixteenBitWeightsGiveTheBitsOfTheirWidenedCopy) {
  core::ThreadPool pool(2);
  const std::int64_t m = 5, n = 9, k = 1090;
  const std::vector<float> x = normals(5 * 1090, 4), w = normals(9 * 1090, 5);
  std::vector<bf16> brain(w.size());
  std::vector<f16> half(w.size());
  std::vector<float> wide_brain(w.size()), wide_half(w.size());
  for (std::size_t i = 0; i < w.size(); ++i) {
    brain[i] = to_bf16(w[i]), wide_brain[i] = to_float(brain[i]);
    half[i] = to_f16(w[i]), wide_half[i] = to_float(half[i]);
  }
  const auto run = [&](const void* data, DType dtype) {
    std::vector<float> y(static_cast<std::size_t>(m * n));
    linear(x, m, {data, dtype, n, k}, nullptr, y, pool);
    return y;
  };
  EXPECT_EQ(run(brain.data(), DType::bf16), run(wide_brain.data(), DType::f32));
  EXPECT_EQ(run(half.data(), DType::f16), run(wide_half.data(), DType::f32));
}

TEST(Linear, QuantisedWeightsGiveTheBitsOfTheirDequantisedCopy) {
  core::ThreadPool pool(2);
  const std::int64_t m = 4, n = 6, k = 1024 + 256;
  const std::vector<float> x = normals(4 * 1280, 8), w = normals(6 * 1280, 9, 0.3f);
  for (const DType dtype : {DType::q8_0, DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1}) {
    std::vector<std::byte> blocks(6 * row_bytes(dtype, k));
    std::vector<float> wide(w.size());
    for (std::size_t r = 0; r < 6; ++r) {
      quantize_row(dtype, w.data() + r * 1280, blocks.data() + r * row_bytes(dtype, k), k);
      dequantize_row(dtype, blocks.data() + r * row_bytes(dtype, k), wide.data() + r * 1280, k);
    }
    on_every_target([&] {
      std::vector<float> from_blocks(24), from_floats(24);
      linear(x, m, {blocks.data(), dtype, n, k}, nullptr, from_blocks, pool);
      linear(x, m, {wide.data(), DType::f32, n, k}, nullptr, from_floats, pool);
      ASSERT_EQ(from_blocks, from_floats) << info(dtype).name;
    });
  }
}

// The error stays within the bound, and shapes that do not fit are refused.
TEST(Linear, ErrorStaysWithinTheDerivedBound) {
  core::ThreadPool pool(1);
  const std::int64_t k = 4096;
  const std::vector<float> x = normals(4096, 6), w = normals(4096, 7);
  double exact = 0.0, magnitude = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    exact += double{x[i]} * double{w[i]};
    magnitude += std::fabs(double{x[i]} * double{w[i]});
  }
  std::vector<float> y(1);
  linear(x, 1, {w.data(), DType::f32, 1, k}, nullptr, y, pool);
  const double roundings =
      static_cast<double>(k / numerics::lanes + 4);  // per lane, then four levels of the tree
  EXPECT_LE(std::fabs(double{y[0]} - exact), roundings * std::ldexp(1.0, -24) * magnitude);
}

TEST(Linear, RefusesShapesThatDoNotFit) {
  core::ThreadPool pool(1);
  std::vector<float> x(6), w(12), y(7);
  EXPECT_THROW(linear(x, 2, {w.data(), DType::f32, 4, 3}, nullptr, y, pool), core::Error);
}

// Norms match double precision and do not see their neighbours.
TEST(Norms, MatchDoublePrecision) {
  core::ThreadPool pool(2);
  for (const std::size_t c : {std::size_t{1}, std::size_t{3}, std::size_t{64}, std::size_t{577}}) {
    const std::size_t m = 11;
    std::vector<float> x = normals(m * c, 8, 3.0f), w = normals(c, 9), b = normals(c, 10);
    for (float& v : x) v += 5.0f;
    std::vector<float> rms(m * c), layer(m * c), inv(m), mean(m), inv_std(m);
    rmsnorm(x, static_cast<std::int64_t>(m), w, 1e-5f, rms, inv, pool);
    layernorm(x, static_cast<std::int64_t>(m), w, b, 1e-5f, layer, mean, inv_std, pool);
    for (std::size_t r = 0; r < m; ++r) {
      double square = 0.0, sum = 0.0, variance = 0.0;
      for (std::size_t i = 0; i < c; ++i)
        square += double{x[r * c + i]} * x[r * c + i], sum += x[r * c + i];
      const double centre = sum / static_cast<double>(c);
      for (std::size_t i = 0; i < c; ++i) variance += std::pow(x[r * c + i] - centre, 2.0);
      const double scale = 1.0 / std::sqrt(square / static_cast<double>(c) + 1e-5);
      const double spread = 1.0 / std::sqrt(variance / static_cast<double>(c) + 1e-5);
      EXPECT_NEAR(inv[r], scale, 1e-6 * scale);
      EXPECT_NEAR(mean[r], centre, 1e-5);
      for (std::size_t i = 0; i < c; ++i) {
        ASSERT_NEAR(rms[r * c + i], x[r * c + i] * scale * w[i],
                    2e-6 * std::fabs(x[r * c + i] * w[i] * scale) + 1e-7);
        if (c > 1) {
          ASSERT_NEAR(layer[r * c + i], (x[r * c + i] - centre) * spread * w[i] + b[i], 2e-5);
        }
      }
      std::vector<float> alone(c);
      rmsnorm(std::span(x).subspan(r * c, c), 1, w, 1e-5f, alone, {}, pool);
      ASSERT_TRUE(
          std::equal(alone.begin(), alone.end(), rms.begin() + static_cast<std::ptrdiff_t>(r * c)));
    }
  }
}

TEST(Norms, HaveTheSameBitsOnEveryProcessor) {
  core::ThreadPool pool(1);
  const std::vector<float> x = normals(1037, 11), w(1037, 1.0f);
  std::vector<float> first(1037);
  rmsnorm(x, 1, w, 1e-6f, first, {}, pool);
  on_every_target([&] {
    std::vector<float> y(1037);
    rmsnorm(x, 1, w, 1e-6f, y, {}, pool);
    ASSERT_EQ(y, first);
  });
}

// The norms of (3, 4), and a mean that defeats the one-pass formula.
TEST(Norms, ByHandAndUnderCancellation) {
  core::ThreadPool pool(1);
  const std::vector<float> x{3.0f, 4.0f}, one{1.0f, 1.0f}, zero{0.0f, 0.0f};
  std::vector<float> y(2);
  rmsnorm(x, 1, one, 0.0f, y, {}, pool);
  EXPECT_NEAR(y[0], 0.8485, 1e-4);
  EXPECT_NEAR(y[1], 1.1314, 1e-4);
  layernorm(x, 1, one, zero, 0.0f, y, {}, {}, pool);
  EXPECT_EQ(y, (std::vector<float>{-1.0f, 1.0f}));

  std::vector<float> far(256), unit(256, 1.0f), none(256, 0.0f), inv(1), mean(1), out(256);
  float sum = 0.0f, squares = 0.0f;
  for (std::size_t i = 0; i < far.size(); ++i) {
    far[i] = 4096.0f + (i % 2 == 0 ? 1.0f : -1.0f);  // variance exactly 1
    sum += far[i] / 256.0f;
    squares += far[i] * far[i] / 256.0f;
  }
  layernorm(far, 1, unit, none, 0.0f, out, mean, inv, pool);
  EXPECT_EQ(inv[0], 1.0f);
  EXPECT_GT(std::fabs(squares - sum * sum - 1.0f), 0.5f);  // what one pass would have made of it
}

// Without a bend two layers are one, and a closed gate lets nothing through.
TEST(FeedForward, WithoutABendIsOneMatrix) {
  core::ThreadPool pool(1);
  const std::int64_t c = 8, f = 24;
  const std::vector<float> x = normals(8, 31), up = normals(24 * 8, 32), down = normals(8 * 24, 33);
  std::vector<float> both(8 * 8);  // down times up, [c, c]
  for (std::int64_t i = 0; i < c; ++i) {
    for (std::int64_t j = 0; j < c; ++j) {
      double sum = 0.0;
      for (std::int64_t k = 0; k < f; ++k) {
        sum += double{down[static_cast<std::size_t>(i * f + k)]} *
               double{up[static_cast<std::size_t>(k * c + j)]};
      }
      both[static_cast<std::size_t>(i * c + j)] = static_cast<float>(sum);
    }
  }
  std::vector<float> hidden(24), twice(8), once(8);
  linear(x, 1, {up.data(), DType::f32, f, c}, nullptr, hidden, pool);
  linear(hidden, 1, {down.data(), DType::f32, c, f}, nullptr, twice, pool);
  linear(x, 1, {both.data(), DType::f32, c, c}, nullptr, once, pool);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(twice[i], once[i], 1e-4f);
  std::vector<float> gated(24);
  silu_multiply(std::vector<float>(24, 0.0f), hidden, gated, pool);
  EXPECT_EQ(gated, std::vector<float>(24, 0.0f));  // silu(0) is 0: the block adds nothing
}

// Activations match double precision on every processor.
TEST(Activations, MatchDoublePrecision) {
  core::ThreadPool pool(2);
  std::vector<float> x;
  for (float z = -12.0f; z < 12.0f; z += 0.0137f) x.push_back(z);
  const std::vector<float> up = normals(x.size(), 20);
  on_every_target([&] {
    std::vector<float> exact(x.size()), approximate(x.size()), gated(x.size()), bent(x.size());
    gelu(x, exact, Gelu::exact, pool);
    gelu(x, approximate, Gelu::tanh, pool);
    silu_multiply(x, up, gated, pool);
    silu(x, bent, pool);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double z = x[i];
      ASSERT_NEAR(exact[i], 0.5 * z * std::erfc(-z / std::sqrt(2.0)), 1e-6);
      ASSERT_NEAR(
          approximate[i],
          0.5 * z *
              (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (z + 0.044715 * z * z * z))),
          2e-6);
      ASSERT_NEAR(gated[i], z / (1.0 + std::exp(-z)) * up[i], 3e-6);
      ASSERT_EQ(gated[i], bent[i] * up[i]);
    }
  });
}

// Log-probabilities are normalised, whatever the width.
TEST(Logprob, MatchesDoublePrecisionAndIgnoresMaskedColumns) {
  core::ThreadPool pool(2);
  for (const std::size_t vocab :
       {std::size_t{1}, std::size_t{5}, std::size_t{128}, std::size_t{1000}}) {
    std::vector<float> logits = normals(3 * vocab, 21, 8.0f);
    const std::vector<std::int32_t> targets{0, static_cast<std::int32_t>(vocab - 1),
                                            static_cast<std::int32_t>(vocab / 2)};
    std::vector<float> got(3), lse(3);
    token_logprob(logits, 3, targets, got, lse, pool);
    for (std::size_t r = 0; r < 3; ++r) {
      double sum = 0.0;
      for (std::size_t i = 0; i < vocab; ++i) sum += std::exp(double{logits[r * vocab + i]});
      EXPECT_NEAR(got[r],
                  double{logits[r * vocab + static_cast<std::size_t>(targets[r])]} - std::log(sum),
                  1e-5);
    }
  }
  std::vector<float> masked(300, -std::numeric_limits<float>::infinity());
  masked[299] = 2.0f;
  std::vector<float> got(1);
  token_logprob(masked, 1, std::vector<std::int32_t>{299}, got, {}, pool);
  EXPECT_EQ(got[0], 0.0f);
}

}  // namespace
}  // namespace rose::kernels
