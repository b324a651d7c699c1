// Tests of the chapter "Kernels for a CPU".

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

#include "labs/counting/allocations.h"
#include "labs/evidence/values.h"
#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/kernels/avx2.h"
#include "rose/kernels/block_reference.h"
#include "rose/kernels/blocks.h"
#include "rose/kernels/elementary.h"
#include "rose/kernels/fixed.h"
#include "rose/kernels/linear.h"
#include "rose/kernels/panel_linear.h"
#include "rose/kernels/panels.h"
#include "rose/kernels/quant.h"

namespace rose::kernels {
namespace {

// Draw activations, and rows of any block type.
std::vector<float> draws(std::int64_t n, std::uint64_t seed, float spread = 0.0f) {
  core::Rng rng(seed);
  std::vector<float> x(static_cast<std::size_t>(n));
  for (float& v : x) v = rng.normal() * exp(spread * rng.normal());
  return x;
}

constexpr std::array block_types{DType::q8_0, DType::q4_0, DType::q4_1, DType::q5_0,
                                 DType::q5_1, DType::q4_k, DType::q5_k, DType::q6_k};

/// Rows of random bits, but for the scales of every block, which are small ordinary numbers.
std::vector<std::byte> random_rows(DType dtype, std::int64_t rows, std::int64_t cols,
                                   std::uint64_t seed) {
  core::Rng rng(seed);
  std::vector<std::byte> out(static_cast<std::size_t>(rows) * row_bytes(dtype, cols));
  for (std::byte& b : out) b = static_cast<std::byte>(rng.next());
  const auto size = static_cast<std::size_t>(info(dtype).block_bytes);
  const bool two = panel_format(dtype).minimum;
  const std::size_t first = dtype == DType::q6_k ? size - sizeof(f16) : 0;
  for (std::size_t at = 0; at < out.size(); at += size) {
    for (std::size_t i = 0; i < (two ? 2u : 1u); ++i) {
      const f16 scale = to_f16(0.01f * rng.normal());
      std::memcpy(out.data() + at + first + i * sizeof scale, &scale, sizeof scale);
    }
  }
  return out;
}

template <class F>
void on_every_target(F&& f) {
  std::int64_t left = hwy::SupportedTargets();
  while (left != 0) {
    hwy::SetSupportedTargetsForTest(left & -left);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    f();
    left &= left - 1;
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

// Codes and scales are those of the decoder.
TEST(Panels, CodesAreThoseOfTheDecoder) {
  for (const DType dtype : block_types) {
    const std::vector<std::byte> row = random_rows(dtype, 1, 1024, 3);
    std::vector<float> decoded(1024);
    dequantize_row(dtype, row.data(), decoded.data(), 1024);
    for (std::size_t i = 0; i < decoded.size(); ++i) {
      const BlockCodes w = read_codes(dtype, row.data(), static_cast<std::int64_t>(i / 32));
      const auto q = static_cast<float>(w.q[i % 32] - w.offset);
      ASSERT_EQ(q * w.scale[i % 32 / 16] + w.minimum, decoded[i]) << info(dtype).name << ' ' << i;
    }
  }
}

// The product has the bits of its plain twin, whatever the company.
TEST(Panels, HaveTheBitsOfTheirPlainTwin) {
  core::ThreadPool one(1), three(3);
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  for (const DType dtype : block_types) {
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 256},
                                  {2, 8, 512},
                                  {4, 7, 256},
                                  {5, 17, 768},
                                  {11, 33, 256},
                                  {64, 9, 1536}}) {
      const std::vector<float> x = draws(m * k, 5, 2.0f), bias = draws(n, 6);
      const std::vector<std::byte> rows = random_rows(dtype, n, k, 7);
      MatrixView w{.data = rows.data(), .dtype = dtype, .rows = n, .cols = k};
      std::vector<std::byte> panels(panel_bytes(w));
      make_panels(w, panels.data(), three);
      std::vector<float> want(at(m * n));
      for (std::int64_t i = 0; i < m * n; ++i) {
        want[at(i)] =
            reference::block_dot(std::span(x).subspan(at(i / n * k), at(k)), dtype, w.row(i % n)) +
            bias[at(i % n)];
      }
      w.panels = panels.data();
      on_every_target([&] {
        for (core::ThreadPool* pool : {&one, &three}) {
          std::vector<float> y(at(m * n), std::nanf(""));
          linear(x, m, w, bias.data(), y, *pool);
          ASSERT_EQ(y, want) << info(dtype).name << " m " << m << " n " << n << " k " << k;
          const std::int64_t r = m / 2;
          std::vector<float> alone(at(n), std::nanf(""));
          linear(std::span(x).subspan(at(r * k), at(k)), 1, w, bias.data(), alone, *pool);
          ASSERT_TRUE(std::equal(alone.begin(), alone.end(), want.begin() + r * n));
        }
      });
    }
  }
}

// Fixed point keeps what it promises, at the extremes too.
TEST(Fixed, KeepsEveryActivationToHalfAStep) {
  constexpr float huge = std::numeric_limits<float>::max(), tiny = 1e-44f;
  for (const float size : {1.0f, 0.99f, 1.9999999f, 3e-30f, 3e30f, huge, tiny, 0.0f}) {
    std::vector<float> x = draws(32, 8, 3.0f);
    const float largest = std::fabs(std::ranges::max(x, {}, [](float v) { return std::fabs(v); }));
    for (float& v : x) v = v / largest * size;
    on_every_target([&] {
      FixedBlock bytes, halves;
      to_fixed(x.data(), 32, FixedForm::bytes, &bytes);
      to_fixed(x.data(), 32, FixedForm::halves, &halves);
      ASSERT_EQ(bytes.scale, halves.scale);
      ASSERT_EQ(bytes.sum, halves.sum);
      std::int8_t digits[8][4][4];
      std::int16_t parts[16][2][2];
      std::memcpy(digits, bytes.words, sizeof digits);
      std::memcpy(parts, halves.words, sizeof parts);
      for (std::size_t i = 0; i < 32; ++i) {
        const auto& d = digits[i / 4];
        const int a = d[0][i % 4] * 65'536 + d[1][i % 4] * 256 + d[2][i % 4];
        ASSERT_EQ(a, parts[i / 2][0][i % 2] * 256 + parts[i / 2][1][i % 2]);
        ASSERT_LE(std::fabs(double{x[i]} - double{bytes.scale} * a),
                  double{bytes.scale} * (0.5 + 1.5));  // half a step, and the scale's own rounding
        ASSERT_LE(bytes.scale, std::max(size * 0x1.02p-23f, 0x1p-122f));
      }
    });
  }
}

TEST(Panels, DoNotOverflowAndLetNaNThrough) {
  core::ThreadPool pool(1);
  BlockQ4_1 block{.d = to_f16(1.0f), .m = to_f16(0.0f), .q = {}};
  std::ranges::fill(block.q, std::uint8_t{0xff});
  MatrixView w{.data = &block, .dtype = DType::q4_1, .rows = 1, .cols = 32};
  std::vector<std::byte> panels(panel_bytes(w));
  make_panels(w, panels.data(), pool);
  w.panels = panels.data();
  for (const float a : {-3.0f, 5e-7f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    const std::vector<float> x(32, a);
    on_every_target([&] {
      std::vector<float> y(1);
      linear(x, 1, w, nullptr, y, pool);
      if (std::isfinite(a)) {
        ASSERT_NEAR(y[0], 480.0f * a, 480.0f * std::fabs(a) * 0x1p-22f);
      } else {
        ASSERT_TRUE(std::isnan(y[0]));
      }
    });
  }
}

// The error stays within the derived bound, and three digits are what it takes.
TEST(Panels, ErrorStaysWithinTheDerivedBound) {
  constexpr std::int64_t k = 1536, rows = 64;
  double square = 0.0, of_digits[4] = {};
  for (const DType dtype : block_types) {
    const std::vector<float> x = draws(k, 9);
    const std::vector<std::byte> w = random_rows(dtype, rows, k, 10);
    std::vector<float> row(k);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::byte* at = w.data() + static_cast<std::size_t>(r) * row_bytes(dtype, k);
      dequantize_row(dtype, at, row.data(), k);
      double exact = 0.0, bound = 0.0, short_by[4] = {};
      for (std::size_t b = 0; b < k; b += 32) {
        float largest = 0.0f;
        for (std::size_t i = b; i < b + 32; ++i) largest = std::max(largest, std::fabs(x[i]));
        const BlockCodes codes = read_codes(dtype, at, static_cast<std::int64_t>(b / 32));
        for (std::size_t i = b; i < b + 32; ++i) {
          const double code_size =
              std::fabs(double{row[i]} - double{codes.minimum}) + std::fabs(double{codes.minimum});
          exact += double{x[i]} * double{row[i]};
          bound += double{largest} * (0x1p-22 + (4.0 + k / 32.0 * 2.0) * 0x1p-24) * code_size;
          for (int d = 1; d < 4; ++d) {  // what an activation of d digits would lose
            const double step = std::ldexp(double{fixed_scale(largest).scale}, 8 * (3 - d));
            short_by[d] +=
                (std::nearbyint(double{x[i]} / step) * step - double{x[i]}) * double{row[i]};
          }
        }
      }
      ASSERT_LE(std::fabs(double{reference::block_dot(x, dtype, at)} - exact), bound);
      square += exact * exact;
      for (int d = 1; d < 4; ++d) of_digits[d] += short_by[d] * short_by[d];
    }
  }
  for (int d = 1; d < 4; ++d)
    labs::write_value("test-panel-error", "digits-" + std::to_string(d),
                      std::sqrt(of_digits[d] / square));
}

// Matrices with and without panels may share their activations.
TEST(Panels, MixWithRows) {
  core::ThreadPool pool(2);
  const std::vector<float> x = draws(3 * 512, 11), dense = draws(5 * 512, 12);
  const std::vector<std::byte> a = random_rows(DType::q4_k, 11, 512, 13),
                               b = random_rows(DType::q6_k, 6, 512, 14);
  MatrixView wa{.data = a.data(), .dtype = DType::q4_k, .rows = 11, .cols = 512},
      wb{.data = b.data(), .dtype = DType::q6_k, .rows = 6, .cols = 512};
  std::vector<std::byte> pa(panel_bytes(wa)), pb(panel_bytes(wb));
  make_panels(wa, pa.data(), pool);
  make_panels(wb, pb.data(), pool);
  wa.panels = pa.data(), wb.panels = pb.data();
  const MatrixView wc{.data = dense.data(), .dtype = DType::f32, .rows = 5, .cols = 512};
  std::vector<float> ya(33), yb(18), yc(15), alone(33), alone_b(18), alone_c(15);
  const std::array<Projection, 3> all{{{.w = wa, .y = ya}, {.w = wc, .y = yc}, {.w = wb, .y = yb}}};
  linear(x, 3, all, pool);
  linear(x, 3, wa, nullptr, alone, pool);
  linear(x, 3, wb, nullptr, alone_b, pool);
  linear(x, 3, wc, nullptr, alone_c, pool);
  EXPECT_EQ(ya, alone);
  EXPECT_EQ(yb, alone_b);
  EXPECT_EQ(yc, alone_c);
  EXPECT_EQ(panel_bytes(wc), 0u);
}

// Only a larger call than any before allocates.
TEST(Panels, AllocateOnlyToGrow) {
  using labs::allocations;
  core::ThreadPool pool(2);
  const std::vector<float> x = draws(8 * 576, 15);
  const std::vector<std::byte> rows = random_rows(DType::q4_1, 40, 576, 16);
  MatrixView w{.data = rows.data(), .dtype = DType::q4_1, .rows = 40, .cols = 576};
  std::vector<std::byte> panels(panel_bytes(w));
  make_panels(w, panels.data(), pool);
  w.panels = panels.data();
  std::vector<float> y(8 * 40);
  linear(x, 8, w, nullptr, y, pool);
  const std::int64_t before = allocations;
  linear(x, 8, w, nullptr, y, pool);
  for (int i = 0; i < 100; ++i)
    linear(std::span(x).first(576), 1, w, nullptr, std::span(y).first(40), pool);
  EXPECT_EQ(allocations - before, 0);
}

// Count the bytes of a token.
TEST(DecodeBytes, OfSmolLM2) {
  constexpr double hidden = 576, layers = 30, ffn = 1536, kv = 192, vocabulary = 49'152;
  const double in_blocks = layers * hidden * (2 * hidden + 2 * kv + 3 * ffn);
  const double head = vocabulary * hidden;
  const double bytes = in_blocks * 20 / 32 + head * 34 / 32;
  labs::write_value("test-decode-bytes", "weights", (in_blocks + head) / 1e6);
  labs::write_value("test-decode-bytes", "megabytes", bytes / 1e6);
  labs::write_value("test-decode-bytes", "operations-per-byte", 2 * (in_blocks + head) / bytes);
  EXPECT_NEAR(bytes / 1e6, 96.4, 0.1);
}

// Many rows have the bits of each row alone.
void expect_rows_as_alone(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) {
  core::ThreadPool two(2);
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  const std::vector<float> x = draws(m * k, 21, 2.0f), bias = draws(n, 22),
                           dense = draws(n * k, 23, 2.0f);
  std::vector<std::byte> rows(at(n) * row_bytes(dtype, k));
  for (std::int64_t r = 0; r < n; ++r)
    quantize_row(dtype, dense.data() + r * k, rows.data() + at(r) * row_bytes(dtype, k), k);
  const MatrixView w{.data = rows.data(), .dtype = dtype, .rows = n, .cols = k};
  std::vector<float> y(at(m * n), std::nanf("")), alone(at(n));
  linear(x, m, w, bias.data(), y, two);
  for (std::int64_t r = 0; r < m; ++r) {
    linear(std::span(x).subspan(at(r * k), at(k)), 1, w, bias.data(), alone, two);
    ASSERT_TRUE(std::equal(alone.begin(), alone.end(), y.begin() + r * n))
        << info(dtype).name << " m " << m << " n " << n << " k " << k << " row " << r;
  }
}

TEST(ManyRows, HaveTheBitsOfEachRowAlone) {
  on_every_target([] {
    for (const DType dtype : {DType::f32, DType::bf16, DType::q8_0}) {
      for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{23, 40, 64},
                                    {24, 64, 128},
                                    {29, 100, 352},
                                    {61, 33, 512},
                                    {36, 48, 544}})
        expect_rows_as_alone(dtype, m, n, k);
    }
    expect_rows_as_alone(DType::f32, 30, 70, 100);  // not a multiple of sixteen
  });
}

}  // namespace
}  // namespace rose::kernels
