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
#include "rose/kernels/attention.h"
#include "rose/kernels/elementary.h"
#include "rose/kernels/embedding.h"
#include "rose/kernels/kv_view.h"
#include "rose/kernels/lanes-inl.h"
#include "rose/kernels/linear.h"
#include "rose/kernels/logprob.h"
#include "rose/kernels/norm.h"
#include "rose/kernels/numerics.h"
#include "rose/kernels/reference.h"
#include "rose/kernels/rope.h"
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
  for (float x = -104.5f; x < 88.7f; x += 0.00037f) worst_exp = std::max(worst_exp, ulps(exp(x), std::exp(double{x})));
  for (float x = -10.0f; x < 10.0f; x += 0.000037f) worst_tanh = std::max(worst_tanh, ulps(tanh(x), std::tanh(double{x})));
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
    const auto size = [](std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); };
    const std::vector<float> x = normals(size(m, k), 1), w = normals(size(n, k), 2), bias = normals(size(n, 1), 3);
    const MatrixView view{w.data(), DType::f32, n, k};
    std::vector<float> want(size(m, n));
    for (std::int64_t r = 0; r < m; ++r) {
      for (std::int64_t c = 0; c < n; ++c) {
        want[size(r, n) + static_cast<std::size_t>(c)] =
            reference::dot(std::span(x).subspan(size(r, k), size(1, k)), std::span(w).subspan(size(c, k), size(1, k))) +
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
  const double roundings = static_cast<double>(k / numerics::lanes + 4);  // per lane, then four levels of the tree
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
      for (std::size_t i = 0; i < c; ++i) square += double{x[r * c + i]} * x[r * c + i], sum += x[r * c + i];
      const double centre = sum / static_cast<double>(c);
      for (std::size_t i = 0; i < c; ++i) variance += std::pow(x[r * c + i] - centre, 2.0);
      const double scale = 1.0 / std::sqrt(square / static_cast<double>(c) + 1e-5);
      const double spread = 1.0 / std::sqrt(variance / static_cast<double>(c) + 1e-5);
      EXPECT_NEAR(inv[r], scale, 1e-6 * scale);
      EXPECT_NEAR(mean[r], centre, 1e-5);
      for (std::size_t i = 0; i < c; ++i) {
        ASSERT_NEAR(rms[r * c + i], x[r * c + i] * scale * w[i], 2e-6 * std::fabs(x[r * c + i] * w[i] * scale) + 1e-7);
        if (c > 1) {
          ASSERT_NEAR(layer[r * c + i], (x[r * c + i] - centre) * spread * w[i] + b[i], 2e-5);
        }
      }
      std::vector<float> alone(c);
      rmsnorm(std::span(x).subspan(r * c, c), 1, w, 1e-5f, alone, {}, pool);
      ASSERT_TRUE(std::equal(alone.begin(), alone.end(), rms.begin() + static_cast<std::ptrdiff_t>(r * c)));
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

// Set up a cache whose pages lie in any order.
struct Paged {
  std::vector<float> k, v;
  std::vector<std::int32_t> table;
  KvView view;

  Paged(int sequences, int pages_each, int kv_heads, int page_size, int head_dim, std::uint64_t seed) {
    const std::size_t pages = static_cast<std::size_t>(sequences * pages_each) + 3;
    k.assign(pages * static_cast<std::size_t>(kv_heads * page_size * head_dim), std::nanf(""));
    v = k;  // poisoned: whatever is read must have been written
    std::vector<std::int32_t> order(pages);
    std::iota(order.begin(), order.end(), 0);
    core::Rng rng(seed);
    core::shuffle(std::span(order), rng);
    table.assign(order.begin(), order.begin() + sequences * pages_each);
    view = {.k = k.data(), .v = v.data(), .layers = 1, .kv_heads = kv_heads, .head_dim = head_dim, .page_size = page_size,
            .pages = static_cast<std::int64_t>(pages), .page_table = table.data(), .table_stride = pages_each};
  }
};

// Packed, paged, chunked and one by one: the same bits, and right.
TEST(Attention, HasTheSameBitsPackedPagedChunkedAndTokenByToken) {
  core::ThreadPool pool(2);
  for (const std::int64_t dim : {std::int64_t{8}, std::int64_t{20}, std::int64_t{64}, std::int64_t{256}}) {
    const AttentionShape shape{.heads = 6, .kv_heads = 2, .head_dim = dim, .scale = 1.0f / std::sqrt(static_cast<float>(dim))};
    const std::vector<std::int32_t> offsets{0, 5, 5, 705, 834};  // one sequence is empty, one crosses a split
    const std::size_t tokens = 834, qd = static_cast<std::size_t>(6 * dim), kd = static_cast<std::size_t>(2 * dim);
    const std::vector<float> q = normals(tokens * qd, 12, 2.0f), k = normals(tokens * kd, 13, 2.0f), v = normals(tokens * kd, 14);
    std::vector<std::int32_t> positions(tokens);
    for (std::size_t s = 0; s + 1 < offsets.size(); ++s) {
      std::iota(positions.begin() + offsets[s], positions.begin() + offsets[s + 1], 0);
    }
    std::vector<float> packed(tokens * qd, std::nanf("")), lse(tokens * 6);
    attention(q, k, v, offsets, shape, packed, lse, pool);

    Paged cache(4, 44, 2, 16, static_cast<int>(dim), 15);
    std::vector<float> whole(tokens * qd, std::nanf(""));
    kv_append(k, v, cache.view, 0, offsets, positions, pool);
    attention(q, cache.view, 0, offsets, positions, shape, whole, {}, pool);
    ASSERT_EQ(whole, packed);

    Paged slow(1, 88, 2, 8, static_cast<int>(dim), 16);  // the long sequence: a chunk of 300, then one by one
    for (std::size_t at = 0; at < 700;) {
      const std::size_t n = at == 0 ? 300 : 1, from = 5 + at;
      const std::vector<std::int32_t> one{0, static_cast<std::int32_t>(n)};
      const auto rows = [&](const std::vector<float>& x, std::size_t width) { return std::span(x).subspan(from * width, n * width); };
      std::vector<float> out(n * qd, std::nanf(""));
      kv_append(rows(k, kd), rows(v, kd), slow.view, 0, one, std::span(positions).subspan(from, n), pool);
      attention(rows(q, qd), slow.view, 0, one, std::span(positions).subspan(from, n), shape, out, {}, pool);
      ASSERT_TRUE(std::ranges::equal(out, rows(packed, qd))) << at;
      at += n;
    }
    for (const std::size_t t : {0, 4, 5, 100, 700, 704, 833}) {  // against the plain twin, and against double precision
      const std::size_t start = t < 5 ? 0 : t < 705 ? 5 : 705, n = t - start + 1;
      for (std::size_t h = 0; h < 6; ++h) {
        const auto d = static_cast<std::size_t>(dim);
        const auto row = [&](const std::vector<float>& x) {
          return std::function<std::span<const float>(std::int64_t)>([&x, start, kd, h, d](std::int64_t j) {
            return std::span(x).subspan((start + static_cast<std::size_t>(j)) * kd + h / 3 * d, d);
          });
        };
        const std::span<const float> query = std::span(q).subspan(t * qd + h * d, d), got = std::span(packed).subspan(t * qd + h * d, d);
        std::vector<float> plain(d);
        reference::attend(query, static_cast<std::int64_t>(n), row(k), row(v), shape.scale, [](float x) { return exp(x); }, plain);
        ASSERT_TRUE(std::ranges::equal(got, plain)) << t << " " << h;
        std::vector<double> score(n), sum(d);
        double highest = -INFINITY, total = 0.0;
        for (std::size_t j = 0; j < n; ++j) {
          for (std::size_t i = 0; i < d; ++i) score[j] += double{query[i]} * row(k)(static_cast<std::int64_t>(j))[i];
          highest = std::max(highest, score[j] *= shape.scale);
        }
        for (std::size_t j = 0; j < n; ++j) {
          const double p = std::exp(score[j] - highest);
          total += p;
          for (std::size_t i = 0; i < d; ++i) sum[i] += p * row(v)(static_cast<std::int64_t>(j))[i];
        }
        for (std::size_t i = 0; i < d; ++i) ASSERT_NEAR(got[i], sum[i] / total, 2e-5);
        ASSERT_NEAR(lse[t * 6 + h], highest + std::log(total), 2e-5);
      }
    }
  }
}

// A rotated pair sees only how far apart two tokens are.
TEST(Rope, ScoresDependOnTheDistanceAlone) {
  core::ThreadPool pool(1);
  const std::vector<float> inv_freq = rope_frequencies(64, 10000.0f);
  const std::vector<float> q = normals(64, 17), k = normals(64, 18);
  const auto turned = [&](std::vector<float> x, std::int32_t position) {
    std::vector<float> cos(32), sin(32);
    rope_table(std::vector<std::int32_t>{position}, inv_freq, 1.0f, cos, sin, pool);
    rope(x, 1, 1, 64, cos, sin, pool);
    return x;
  };
  const auto score = [&](std::int32_t at_q, std::int32_t at_k) { return reference::dot(turned(q, at_q), turned(k, at_k)); };
  for (const std::int32_t distance : {0, 1, 5, 100}) {
    const float near_start = score(distance, 0);
    for (const std::int32_t shift : {1, 50, 1000}) EXPECT_NEAR(score(shift + distance, shift), near_start, 2e-3f);
  }
  EXPECT_EQ(turned(q, 0), q);
  EXPECT_GT(std::fabs(score(5, 0) - score(0, 5)), 1e-2f);  // the direction matters
}

TEST(Rope, TurningBackRestores) {
  core::ThreadPool pool(1);
  const std::vector<float> inv_freq = rope_frequencies(16, 10000.0f), x = normals(3 * 2 * 16, 19);
  const std::vector<std::int32_t> positions{7, 8, 4000};
  std::vector<float> cos(3 * 8), sin(3 * 8), y = x;
  rope_table(positions, inv_freq, 1.0f, cos, sin, pool);
  rope(y, 3, 2, 16, cos, sin, pool);
  for (float& s : sin) s = -s;
  rope(y, 3, 2, 16, cos, sin, pool);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[i], x[i], 1e-6f);
}

// Activations match double precision on every processor.
TEST(Activations, MatchDoublePrecision) {
  core::ThreadPool pool(2);
  std::vector<float> x;
  for (float z = -12.0f; z < 12.0f; z += 0.0137f) x.push_back(z);
  const std::vector<float> up = normals(x.size(), 20);
  on_every_target([&] {
    std::vector<float> exact(x.size()), approximate(x.size()), gated(x.size());
    gelu(x, exact, Gelu::exact, pool);
    gelu(x, approximate, Gelu::tanh, pool);
    silu_multiply(x, up, gated, pool);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double z = x[i];
      ASSERT_NEAR(exact[i], 0.5 * z * std::erfc(-z / std::sqrt(2.0)), 1e-6);
      ASSERT_NEAR(approximate[i], 0.5 * z * (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (z + 0.044715 * z * z * z))), 2e-6);
      ASSERT_NEAR(gated[i], z / (1.0 + std::exp(-z)) * up[i], 3e-6);
    }
  });
}

// Log-probabilities are normalised, whatever the width.
TEST(Logprob, MatchesDoublePrecisionAndIgnoresMaskedColumns) {
  core::ThreadPool pool(2);
  for (const std::size_t vocab : {std::size_t{1}, std::size_t{5}, std::size_t{128}, std::size_t{1000}}) {
    std::vector<float> logits = normals(3 * vocab, 21, 8.0f);
    const std::vector<std::int32_t> targets{0, static_cast<std::int32_t>(vocab - 1), static_cast<std::int32_t>(vocab / 2)};
    std::vector<float> got(3), lse(3);
    token_logprob(logits, 3, targets, got, lse, pool);
    for (std::size_t r = 0; r < 3; ++r) {
      double sum = 0.0;
      for (std::size_t i = 0; i < vocab; ++i) sum += std::exp(double{logits[r * vocab + i]});
      EXPECT_NEAR(got[r], double{logits[r * vocab + static_cast<std::size_t>(targets[r])]} - std::log(sum), 1e-5);
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
