// Tests of the chapter "Attention".

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

#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/kernels/attention.h"
#include "rose/kernels/attention_reference.h"
#include "rose/kernels/elementary.h"
#include "rose/kernels/kv_view.h"
#include "rose/kernels/reference.h"
#include "rose/kernels/rope.h"

namespace rose::kernels {
namespace {

// Work the example of the text.
TEST(Attention, AttentionByHand) {
  core::ThreadPool pool(1);
  const std::vector<float> q{1.0f, 1.0f, 1.0f}, k{0.0f, std::log(2.0f), std::log(3.0f)},
      v{6.0f, 3.0f, 2.0f};
  std::vector<float> out(3), lse(3);
  attention(q, k, v, std::vector<std::int32_t>{0, 3},
            {.heads = 1, .kv_heads = 1, .head_dim = 1, .scale = 1.0f}, out, lse, pool);
  EXPECT_NEAR(out[0], 6.0f, 1e-6f);
  EXPECT_NEAR(out[1], 4.0f, 1e-6f);
  EXPECT_NEAR(out[2], 3.0f, 1e-6f);
  EXPECT_NEAR(lse[2], std::log(6.0f), 1e-6f);
  const auto with_keys = [&](std::vector<float> keys) {
    attention(q, keys, v, std::vector<std::int32_t>{0, 3},
              {.heads = 1, .kv_heads = 1, .head_dim = 1, .scale = 1.0f}, out, lse, pool);
    return out;
  };
  const std::vector<float> equal = with_keys({1.0f, 1.0f, 1.0f});  // plain averages
  EXPECT_NEAR(equal[1], 4.5f, 1e-6f);
  EXPECT_NEAR(equal[2], 11.0f / 3, 1e-6f);
  EXPECT_NEAR(with_keys({0.0f, std::log(2.0f), std::log(3.0f) + 100})[2], 2.0f, 1e-6f);
}

// Draw numbers.
std::vector<float> normals(std::size_t n, std::uint64_t seed, float scale = 1.0f) {
  core::Rng rng(seed);
  std::vector<float> x(n);
  for (float& v : x) v = rng.normal() * scale;
  return x;
}

// Set up a cache whose pages lie in any order.
struct Paged {
  std::vector<float> k, v;
  std::vector<std::int32_t> table;
  KvView view;

  Paged(int sequences, int pages_each, int kv_heads, int page_size, int head_dim,
        std::uint64_t seed) {
    const std::size_t pages = static_cast<std::size_t>(sequences * pages_each) + 3;
    k.assign(pages * static_cast<std::size_t>(kv_heads * page_size * head_dim), std::nanf(""));
    v = k;  // poisoned: whatever is read must have been written
    std::vector<std::int32_t> order(pages);
    std::iota(order.begin(), order.end(), 0);
    core::Rng rng(seed);
    core::shuffle(std::span(order), rng);
    table.assign(order.begin(), order.begin() + sequences * pages_each);
    view = {.k = k.data(),
            .v = v.data(),
            .layers = 1,
            .kv_heads = kv_heads,
            .head_dim = head_dim,
            .page_size = page_size,
            .pages = static_cast<std::int64_t>(pages),
            .page_table = table.data(),
            .table_stride = pages_each};
  }
};

// Packed, paged, chunked and one by one: the same bits, and right.
TEST(Attention, HasTheSameBitsPackedPagedChunkedAndTokenByToken) {
  core::ThreadPool pool(2), single(1);
  for (const std::int64_t dim :
       {std::int64_t{8}, std::int64_t{20}, std::int64_t{64}, std::int64_t{256}}) {
    const AttentionShape shape{.heads = 6,
                               .kv_heads = 2,
                               .head_dim = dim,
                               .scale = 1.0f / std::sqrt(static_cast<float>(dim))};
    const std::vector<std::int32_t> offsets{0, 5, 5, 705,
                                            834};  // one sequence is empty, one crosses a split
    const std::size_t tokens = 834, qd = static_cast<std::size_t>(6 * dim),
                      kd = static_cast<std::size_t>(2 * dim);
    const std::vector<float> q = normals(tokens * qd, 12, 2.0f), k = normals(tokens * kd, 13, 2.0f),
                             v = normals(tokens * kd, 14);
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

    Paged slow(1, 88, 2, 8, static_cast<int>(dim),
               16);  // the long sequence: a chunk of 300, then one by one
    for (std::size_t at = 0; at < 700;) {
      const std::size_t n = at == 0 ? 300 : 1, from = 5 + at;
      const std::vector<std::int32_t> one{0, static_cast<std::int32_t>(n)};
      const auto rows = [&](const std::vector<float>& x, std::size_t width) {
        return std::span(x).subspan(from * width, n * width);
      };
      std::vector<float> out(n * qd, std::nanf(""));
      kv_append(rows(k, kd), rows(v, kd), slow.view, 0, one, std::span(positions).subspan(from, n),
                single);
      attention(rows(q, qd), slow.view, 0, one, std::span(positions).subspan(from, n), shape, out,
                {}, single);
      ASSERT_TRUE(std::ranges::equal(out, rows(packed, qd))) << at;
      at += n;
    }
    // Some tokens against the plain twin and double precision.
    for (const std::size_t t : {0, 4, 5, 100, 700, 704, 833}) {
      const std::size_t start = t < 5 ? 0 : t < 705 ? 5 : 705, n = t - start + 1;
      for (std::size_t h = 0; h < 6; ++h) {
        const auto d = static_cast<std::size_t>(dim);
        const auto row = [&](const std::vector<float>& x) {
          return std::function<std::span<const float>(std::int64_t)>([&x, start, kd, h,
                                                                      d](std::int64_t j) {
            return std::span(x).subspan((start + static_cast<std::size_t>(j)) * kd + h / 3 * d, d);
          });
        };
        const std::span<const float> query = std::span(q).subspan(t * qd + h * d, d),
                                     got = std::span(packed).subspan(t * qd + h * d, d);
        std::vector<float> plain(d);
        reference::attend(
            query, static_cast<std::int64_t>(n), row(k), row(v), shape.scale,
            [](float x) { return exp(x); }, plain);
        ASSERT_TRUE(std::ranges::equal(got, plain)) << t << " " << h;
        std::vector<double> score(n), sum(d);
        double highest = -INFINITY, total = 0.0;
        for (std::size_t j = 0; j < n; ++j) {
          for (std::size_t i = 0; i < d; ++i)
            score[j] += double{query[i]} * row(k)(static_cast<std::int64_t>(j))[i];
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

// Scores have unit variance at every width, and unscaled ones saturate.
TEST(Attention, ScalingKeepsTheVarianceOfScoresAtOne) {
  for (const std::size_t dim : {std::size_t{16}, std::size_t{64}, std::size_t{256}}) {
    double variance = 0.0;
    const std::size_t draws = 4000;
    for (std::size_t i = 0; i < draws; ++i) {
      const double score = reference::dot(normals(dim, 2 * i), normals(dim, 2 * i + 1)) /
                           std::sqrt(static_cast<double>(dim));
      variance += score * score / static_cast<double>(draws);
    }
    EXPECT_NEAR(variance, 1.0, 0.1) << dim;  // standard error of the estimate: 0.022
  }
  // Unscaled, a score of 256 products has variance 256, a difference of two scores twice that.
  EXPECT_NEAR(std::sqrt(2.0 * 256), 22.6, 0.05);
  EXPECT_LT(std::exp(-22.6), 1e-9);  // what softmax gives the lower of the two
}

// A 16-bit cache costs what its rounding costs.
TEST(Attention, SixteenBitCachesRoundAndNothingElse) {
  core::ThreadPool pool(1);
  const AttentionShape shape{.heads = 2, .kv_heads = 1, .head_dim = 64, .scale = 0.125f};
  const std::vector<std::int32_t> offsets{0, 200};
  std::vector<std::int32_t> positions(200);
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<float> q = normals(200 * 128, 31), k = normals(200 * 64, 32),
                           v = normals(200 * 64, 33);
  std::vector<float> exact(200 * 128);
  attention(q, k, v, offsets, shape, exact, {}, pool);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    std::vector<std::uint16_t> keys(200 * 64), values(200 * 64);
    const std::int32_t table = 0;
    const KvView view{.k = keys.data(),
                      .v = values.data(),
                      .dtype = dtype,
                      .layers = 1,
                      .kv_heads = 1,
                      .head_dim = 64,
                      .page_size = 200,
                      .pages = 1,
                      .page_table = &table,
                      .table_stride = 1};
    kv_append(k, v, view, 0, offsets, positions, pool);
    std::vector<float> out(200 * 128);
    attention(q, view, 0, offsets, positions, shape, out, {}, pool);
    float worst = 0.0f;
    for (std::size_t i = 0; i < out.size(); ++i)
      worst = std::max(worst, std::fabs(out[i] - exact[i]));
    EXPECT_LT(worst, dtype == DType::f16 ? 4e-3f : 4e-2f);
    EXPECT_GT(worst, 0.0f);
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
  const auto score = [&](std::int32_t at_q, std::int32_t at_k) {
    return reference::dot(turned(q, at_q), turned(k, at_k));
  };
  for (const std::int32_t distance : {0, 1, 5, 100}) {
    const float near_start = score(distance, 0);
    for (const std::int32_t shift : {1, 50, 1000})
      EXPECT_NEAR(score(shift + distance, shift), near_start, 2e-3f);
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

// Stretching leaves the fast planes and divides the slow ones.
TEST(Rope, StretchingKeepsFastPlanesAndDividesSlowOnes) {
  const std::vector<float> plain = rope_frequencies(64, 10000.0f);
  EXPECT_EQ(plain[0], 1.0f);
  EXPECT_NEAR(plain[16], 0.01f, 1e-8f);  // 10000^(-1/2)
  std::vector<float> linear = plain, llama = plain, yarn = plain;
  stretch_linear(linear, 4.0f);
  stretch_llama3(llama, 4.0f, 2048, 1.0f, 4.0f);
  stretch_yarn(yarn, 10000.0f, 4.0f, 2048, 32.0f, 1.0f, true);
  for (const std::vector<float>* stretched : {&llama, &yarn}) {
    EXPECT_EQ(stretched->front(), plain.front());
    EXPECT_FLOAT_EQ(stretched->back(), plain.back() / 4.0f);
    for (std::size_t i = 0; i < plain.size(); ++i) {
      EXPECT_LE((*stretched)[i], plain[i]);
      EXPECT_GE((*stretched)[i], linear[i] * 0.999f);
    }
  }
  const auto turns = [&](std::size_t i) {
    return 2048.0f * plain[i] / (2.0f * std::numbers::pi_v<float>);
  };
  for (std::size_t i = 0; i < plain.size();
       ++i) {  // more than 4 turns: kept; less than one: divided
    if (turns(i) > 4.0f) {
      EXPECT_EQ(llama[i], plain[i]);
    }
    if (turns(i) < 1.0f) {
      EXPECT_FLOAT_EQ(llama[i], plain[i] / 4.0f);
    }
  }
}

}  // namespace
}  // namespace rose::kernels
