// Tests of the chapter "Tensors, dtypes and floating point".

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

#include "labs/evidence/values.h"
#include "rose/kernels/dtype.h"
#include "rose/kernels/view.h"

namespace rose::kernels {
namespace {

// Transposing, slicing and repeating move no number.
TEST(StridedView, MovesNoNumber) {
  std::array<int, 6> data{0, 1, 2, 3, 4, 5};
  const auto a = StridedView<int, 2>::contiguous(data.data(), {2, 3});
  EXPECT_THAT(a.stride, testing::ElementsAre(3, 1));
  EXPECT_EQ(a(1, 2), 5);
  const auto t = a.transposed(0, 1);
  EXPECT_THAT(t.shape, testing::ElementsAre(3, 2));
  EXPECT_EQ(t(2, 1), 5);
  EXPECT_FALSE(t.is_contiguous());
  const auto s = a.sliced(1, 1, 3);
  EXPECT_EQ(s(0, 0), 1);
  EXPECT_EQ(s(1, 1), 5);
  EXPECT_EQ(s.size(), 4);
  StridedView<int, 2> repeated = a.sliced(0, 1, 2);
  repeated.shape[0] = 1000;
  repeated.stride[0] = 0;
  EXPECT_EQ(repeated(999, 0), 3);
  const auto cube = StridedView<int, 3>::contiguous(data.data(), {2, 3, 4});
  EXPECT_THAT(cube.stride, testing::ElementsAre(12, 4, 1));
  const auto swapped = cube.transposed(0, 1);
  EXPECT_THAT(swapped.stride, testing::ElementsAre(4, 12, 1));
  EXPECT_NE(swapped.stride[1], swapped.stride[2] * swapped.shape[2]);  // axes 1, 2 do not merge
  EXPECT_NE(swapped.stride[0], swapped.stride[1] * swapped.shape[1]);  // nor do 0, 1
  t(2, 1) = 50;
  EXPECT_EQ(a(1, 2), 50);  // the same memory
}

// Every step of every staircase is where it should be.
template <class T, class Convert>
void check_staircase(Convert convert, unsigned last_finite, unsigned beyond) {
  using Bits = decltype(T::bits);
  const auto value = [](unsigned bits) { return to_float(T{static_cast<Bits>(bits)}); };
  const unsigned sign_bit = 1u << (8 * sizeof(Bits) - 1);
  for (const float sign : {1.0f, -1.0f}) {
    const unsigned s = sign < 0 ? sign_bit : 0;
    const auto pattern = [&](float x) { return static_cast<unsigned>(convert(sign * x).bits); };
    for (unsigned low = 0; low <= last_finite; ++low) {
      const unsigned high = low == last_finite ? beyond : low + 1;
      const double below = value(low);  // beyond the largest comes what would be the next
      const double above = low == last_finite ? 2 * below - value(low - 1) : value(low + 1);
      const auto middle = static_cast<float>((below + above) / 2);  // exact: one more bit
      ASSERT_EQ(pattern(value(low)), s | low);
      ASSERT_EQ(pattern(std::nextafter(middle, 0.0f)), s | low) << low;
      ASSERT_EQ(pattern(middle), s | (low % 2 == 0 ? low : high)) << low;
      ASSERT_EQ(pattern(std::nextafter(middle, std::numeric_limits<float>::infinity())), s | high)
          << low;
    }
    ASSERT_EQ(pattern(std::numeric_limits<float>::infinity()), s | beyond);
  }
  EXPECT_TRUE(std::isnan(to_float(convert(std::nanf("")))));
  EXPECT_TRUE(std::isnan(to_float(convert(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(to_float(convert(std::bit_cast<float>(0xffffffffu)))));
}

TEST(Rounding, IsToNearestEvenEverywhere) {
  check_staircase<bf16>([](float x) { return to_bf16(x); }, 0x7f7f, 0x7f80);
  check_staircase<f16>([](float x) { return to_f16(x); }, 0x7bff, 0x7c00);
  check_staircase<f8_e4m3>([](float x) { return to_f8_e4m3(x, false); }, 0x7e, 0x7f);
  check_staircase<f8_e5m2>([](float x) { return to_f8_e5m2(x, false); }, 0x7b, 0x7c);
  EXPECT_EQ(to_f8_e4m3(1e9f).bits, 0x7e);  // saturating, the default
  EXPECT_EQ(to_f8_e5m2(-1e9f).bits, 0xfb);
}

// Decoding agrees with the compiler and with the definition.
double by_definition(unsigned bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int e = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const double m = (bits & ((1u << mantissa_bits) - 1)) / std::pow(2.0, mantissa_bits);
  const double sign = bits >> (exponent_bits + mantissa_bits) ? -1 : 1;
  return sign * (e == 0 ? m * std::pow(2.0, 1 - bias) : (1 + m) * std::pow(2.0, e - bias));
}

TEST(Decoding, AgreesWithOthers) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const auto theirs = static_cast<float>(std::bit_cast<_Float16>(half));
    const float ours = to_float(f16{half});
    ASSERT_TRUE(ours == theirs || (std::isnan(ours) && std::isnan(theirs))) << bits;
    ASSERT_EQ(std::signbit(ours), std::signbit(theirs)) << bits;
    if (std::isfinite(to_float(bf16{half}))) {
      ASSERT_EQ(to_float(bf16{half}), by_definition(bits, 8, 7)) << bits;
    }
  }
  for (unsigned bits = 0; bits < 0x100; ++bits) {
    const auto byte = static_cast<std::uint8_t>(bits);
    if ((bits & 0x7f) != 0x7f) {
      ASSERT_EQ(to_float(f8_e4m3{byte}), by_definition(bits, 4, 3)) << bits;
    }
    if ((bits & 0x7f) < 0x7c) {
      ASSERT_EQ(to_float(f8_e5m2{byte}), by_definition(bits, 5, 2)) << bits;
    }
  }
  EXPECT_TRUE(std::isnan(to_float(f8_e4m3{0x7f})) && std::isnan(to_float(f8_e4m3{0xff})));
  EXPECT_EQ(to_float(f8_e5m2{0xfc}), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(to_float(f8_e5m2{0x7d})));
}

TEST(Decoding, GivesTheNumbersOfTheTable) {
  EXPECT_EQ(to_float(to_f8_e4m3(0.1f)), 0.1015625f);
  EXPECT_EQ(to_f8_e4m3(0.1f).bits, 0b0'0011'101);
  EXPECT_EQ(to_float(to_bf16(0.1f)), 0.10009765625f);
  EXPECT_EQ(to_float(f16{0x7bff}), 65504.0f);
  EXPECT_EQ(to_float(f8_e4m3{0x7e}), 448.0f);
  EXPECT_EQ(to_float(f8_e5m2{0x7b}), 57344.0f);
  EXPECT_EQ(to_float(f16{1}), 0x1p-24f);
  EXPECT_EQ(to_float(bf16{1}), 0x1p-133f);
}

// Rounding twice is not rounding once.
TEST(Rounding, TwiceIsNotOnce) {
  const float x = 1.0625f + 0x1p-20f;
  EXPECT_EQ(to_float(to_f8_e4m3(x)), 1.125f);
  EXPECT_EQ(to_float(to_f8_e4m3(to_float(to_bf16(x)))), 1.0f);
}

// Three orders, their errors and their bounds.
float sum_ascending(std::span<const float> x) {
  float sum = 0;
  for (const float value : x) sum += value;
  return sum;
}

float sum_pairwise(std::span<const float> x) {
  if (x.size() == 1) return x[0];
  const std::size_t half = x.size() / 2;
  return sum_pairwise(x.first(half)) + sum_pairwise(x.subspan(half));
}

float sum_lanes(std::span<const float> x) {
  std::array<float, 16> lane{};
  for (std::size_t i = 0; i < x.size(); ++i) lane[i % 16] += x[i];
  for (std::size_t width = 8; width > 0; width /= 2) {
    for (std::size_t k = 0; k < width; ++k) lane[k] += lane[k + width];
  }
  return lane[0];
}

TEST(Summation, TheDepthOfTheTreeDecides) {
  constexpr std::size_t n = 4096;
  constexpr double u = 0x1p-24;
  const auto gamma = [](double depth) { return depth * u / (1 - depth * u); };
  std::mt19937 random(5);
  std::uniform_real_distribution<float> draw(0.0f, 1.0f);
  std::array<double, 3> worst{};
  for (int trial = 0; trial < 1000; ++trial) {
    std::vector<float> x(n);
    double exact = 0;  // sums of 4096 floats of this size are exact in a double: 53 > 24 + 24 bits
    for (float& value : x)
      exact += value = std::ldexp(std::rint(std::ldexp(draw(random), 24)), -24);
    const std::array<float, 3> sums = {sum_ascending(x), sum_lanes(x), sum_pairwise(x)};
    const std::array<double, 3> depth = {n - 1, n / 16 - 1 + 4, 12};
    for (std::size_t k = 0; k < 3; ++k) {
      const double error = std::fabs(sums[k] - exact) / exact;  // all positive: sum |x| = sum x
      ASSERT_LE(error, gamma(depth[k]));
      worst[k] = std::max(worst[k], error / u);
    }
  }
  EXPECT_NEAR(gamma(125'000 - 1 + 7), 0.0075, 5e-5);  // a million in eight runs, then over the runs
  EXPECT_LT(worst[2], worst[1]);
  EXPECT_LT(worst[1], worst[0]);
  labs::write_value("summation-orders", "ascending", worst[0]);
  labs::write_value("summation-orders", "lanes", worst[1]);
  labs::write_value("summation-orders", "pairwise", worst[2]);
}

// A sum in a narrow format stops growing.
TEST(Summation, StopsGrowingInANarrowFormat) {
  float in_bf16 = 0, in_fp16 = 0, in_fp32 = 16'777'200;
  for (int i = 0; i < 5000; ++i) {
    in_bf16 = to_float(to_bf16(in_bf16 + 1));
    in_fp16 = to_float(to_f16(in_fp16 + 1));
    in_fp32 += 1;
  }
  float ones_in_e4m3 = 0, halves_in_bf16 = 0;
  for (int i = 0; i < 500; ++i) {
    ones_in_e4m3 = to_float(to_f8_e4m3(ones_in_e4m3 + 1));
    halves_in_bf16 = to_float(to_bf16(halves_in_bf16 + 0.5f));
  }
  EXPECT_EQ(ones_in_e4m3, 16);
  EXPECT_EQ(halves_in_bf16, 128);
  EXPECT_EQ(in_bf16, 256);
  EXPECT_EQ(in_fp16, 2048);
  EXPECT_EQ(in_fp32, 16'777'216);
}

// Contraction breaks commutativity.
TEST(Contraction, BreaksCommutativity) {
  std::mt19937 random(11);
  std::normal_distribution<float> draw;
  constexpr int trials = 100'000;
  int plain = 0, contracted = 0;
  for (int i = 0; i < trials; ++i) {
    const float a = draw(random), b = draw(random), c = draw(random), d = draw(random);
    const float ab_cd = a * b + c * d, cd_ab = c * d + a * b;
    plain += ab_cd != cd_ab;
    contracted += std::fma(a, b, c * d) != std::fma(c, d, a * b);
  }
  EXPECT_EQ(plain, 0) << "was this built with -ffp-contract=off?";
  EXPECT_GT(contracted, trials / 10);
  labs::write_value("contraction", "differ", 100.0 * contracted / trials);
}

// A variance by difference of large numbers has no correct digit.
float variance_by_difference(std::span<const float> x) {
  float sum = 0, squares = 0;
  for (const float value : x) {
    sum += value;
    squares += value * value;
  }
  const float n = static_cast<float>(x.size()), mean = sum / n;
  return squares / n - mean * mean;
}

float variance_about_the_mean(std::span<const float> x) {
  const float n = static_cast<float>(x.size());
  const float mean = sum_ascending(x) / n;
  float squares = 0;
  for (const float value : x) squares += (value - mean) * (value - mean);
  return squares / n;
}

TEST(Cancellation, LeavesNoDigit) {
  constexpr std::array x = {4097.0f, 4098.0f, 4099.0f};
  EXPECT_EQ(variance_about_the_mean(x), 2.0f / 3.0f);
  const float bad = variance_by_difference(x);
  EXPECT_GT(std::fabs(bad - 2.0f / 3.0f), 0.6f);
  labs::write_value("cancellation", "one-pass", bad);
}

// Of all random numbers, exactly the right share rounds up.
TEST(Stochastic, RoundsUpExactlyAsOftenAsItShould) {
  for (const float x : {1.0f, 1.001f, -3.14159f, 0x1.8p-130f, 1e38f}) {
    double sum = 0;
    for (std::uint32_t random = 0; random < 0x10000; ++random) {
      sum += static_cast<double>(to_float(to_bf16_stochastic(x, random)));
    }
    EXPECT_EQ(sum / 0x10000, static_cast<double>(x));
  }
  EXPECT_EQ(to_bf16_stochastic(std::numeric_limits<float>::infinity(), 0xffff).bits, 0x7f80);
  EXPECT_TRUE(std::isnan(to_float(to_bf16_stochastic(std::nanf(""), 0xffff))));
}

TEST(Stochastic, KeepsSmallUpdates) {
  std::mt19937 random(2);
  float nearest = 1, stochastic = 1;
  for (int step = 0; step < 1000; ++step) {
    nearest = to_float(to_bf16(nearest + 0.001f));
    stochastic =
        to_float(to_bf16_stochastic(stochastic + 0.001f, static_cast<std::uint32_t>(random())));
  }
  EXPECT_EQ(nearest, 1.0f);             // it never moved
  EXPECT_NEAR(stochastic, 2.0f, 0.3f);  // it arrived, give or take the walk's deviation
}

}  // namespace
}  // namespace rose::kernels
