// Tests of the chapter "Quantised blocks".

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
#include "rose/kernels/blocks.h"
#include "rose/kernels/quant.h"

namespace rose::kernels {
namespace {

// The dtype table and the structs agree.
struct Size {
  DType type;
  std::size_t bytes;
  double bits;
};
const std::vector<Size> sizes = {
    {DType::q8_0, sizeof(BlockQ8_0), 8.5}, {DType::q6_k, sizeof(BlockQ6_K), 6.5625},
    {DType::q5_1, sizeof(BlockQ5_1), 6.0}, {DType::q5_0, sizeof(BlockQ5_0), 5.5},
    {DType::q5_k, sizeof(BlockQ5_K), 5.5}, {DType::q4_1, sizeof(BlockQ4_1), 5.0},
    {DType::q4_0, sizeof(BlockQ4_0), 4.5}, {DType::q4_k, sizeof(BlockQ4_K), 4.5}};

TEST(Blocks, SizesMatchTheTable) {
  for (const Size& size : sizes) {
    EXPECT_EQ(info(size.type).block_bytes, static_cast<int>(size.bytes)) << info(size.type).name;
    EXPECT_EQ(8.0 * static_cast<double>(size.bytes) / info(size.type).block_elements, size.bits);
  }
  // What Q4_K spends beside its 4 bits, and what two halves for each of eight sub-blocks would be.
  EXPECT_EQ(8.0 * (sizeof(BlockQ4_K) - 128) / 256, 0.5);
  EXPECT_EQ(8.0 * (8 * 2 * 2) / 256, 1.0);
}

// The worked block decodes to the numbers in the text.
TEST(Quantise, WorkedBlock) {
  std::vector<float> x(32, 0.0f), y(32);
  x[0] = -0.5f, x[5] = 0.33f, x[20] = 1.0f;
  BlockQ4_1 block;
  quantize_row(DType::q4_1, x.data(), &block, 32);
  EXPECT_EQ(to_float(block.d), 0.0999755859375f);
  EXPECT_EQ(to_float(block.m), -0.5f);
  EXPECT_EQ(block.q[5] & 15, 8);
  EXPECT_EQ(block.q[20 - 16] >> 4, 15);
  dequantize_row(DType::q4_1, &block, y.data(), 32);
  EXPECT_EQ(y[0], -0.5f);
  EXPECT_EQ(y[5], 0.2998046875f);
  EXPECT_EQ(y[20], 0.9996337890625f);
}

// No weight is further off than the derivation allows.
std::vector<float> round_trip(DType type, const std::vector<float>& x) {
  const auto n = static_cast<std::int64_t>(x.size());
  std::vector<std::byte> row(row_bytes(type, n));
  std::vector<float> y(x.size());
  quantize_row(type, x.data(), row.data(), n);
  dequantize_row(type, row.data(), y.data(), n);
  return y;
}

TEST(Quantise, ErrorStaysWithinTheBound) {
  std::mt19937 bits(11);
  std::normal_distribution<float> draw(0.0f, 0.02f);
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<float> x(32);
    for (float& value : x) value = draw(bits);
    const auto [low, high] = std::minmax_element(x.begin(), x.end());
    const double delta = std::ldexp(1.0, -11);
    for (const auto& [type, top] : {std::pair{DType::q4_1, 15}, std::pair{DType::q5_1, 31}}) {
      const double d = (double{*high} - double{*low}) / top;
      const double bound = d / 2 + top * delta * d + delta * std::fabs(double{*low}) + 1e-8;
      const std::vector<float> y = round_trip(type, x);
      for (std::size_t i = 0; i < 32; ++i) ASSERT_LE(std::fabs(double{y[i]} - double{x[i]}), bound);
    }
  }
}

// The typical error on Gaussian weights.
double relative_rms(DType type) {
  std::mt19937 bits(5);
  std::normal_distribution<float> draw(0.0f, 0.02f);
  std::vector<float> x(1 << 18);
  for (float& value : x) value = draw(bits);
  const std::vector<float> y = round_trip(type, x);
  double error = 0, power = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    error += std::pow(double{y[i]} - double{x[i]}, 2);
    power += std::pow(double{x[i]}, 2);
  }
  return std::sqrt(error / power);
}

TEST(Quantise, TypicalErrorHalvesWithEachBit) {
  const double q4 = relative_rms(DType::q4_1), q5 = relative_rms(DType::q5_1),
               q8 = relative_rms(DType::q8_0);
  EXPECT_NEAR(q4, 4.1 / 15 / std::sqrt(12.0), 0.004);
  EXPECT_NEAR(q5 / q4, 15.0 / 31, 0.02);
  EXPECT_LT(q8, 0.006);
  EXPECT_GT(relative_rms(DType::q4_0), q4);  // the lopsided ruler is worse, and half a bit cheaper
  EXPECT_GT(relative_rms(DType::q5_0), q5);
}

// An outlier spoils its block, and only its block.
TEST(Quantise, AnOutlierSpoilsItsBlockAlone) {
  std::mt19937 bits(8);
  std::normal_distribution<float> draw(0.0f, 0.02f);
  double spoilt = 0, spared = 0, shared = 0;
  constexpr int rows = 64, n = 4096;
  for (int r = 0; r < rows; ++r) {
    std::vector<float> x(n);
    for (float& value : x) value = draw(bits);
    x[5] = 40 * 0.02f;
    const std::vector<float> y = round_trip(DType::q4_1, x);
    const auto [low, high] = std::minmax_element(x.begin(), x.end());
    const float d = (*high - *low) / 15;  // the ruler that one scale for the whole row would have
    for (std::size_t i = 0; i < n; ++i) {
      if (i == 5) continue;
      const float one_scale = *low + d * std::round((x[i] - *low) / d);
      (i < 32 ? spoilt : spared) += std::pow((y[i] - x[i]) / 0.02, 2);
      shared += std::pow((one_scale - x[i]) / 0.02, 2);
    }
  }
  spoilt = std::sqrt(spoilt / (31 * rows));
  spared = std::sqrt(spared / ((n - 32) * rows));
  shared = std::sqrt(shared / ((n - 1) * rows));
  EXPECT_NEAR(spared, 0.08, 0.005);  // in units of the standard deviation, as before
  EXPECT_NEAR(spoilt, 0.8, 0.1);     // a step of (40 + 2) / 15 = 2.8, over the root of 12
  EXPECT_NEAR(shared, 0.8, 0.15);    // and so for every weight of the row
}

// Every bit of a K block lies where the figure says.
struct PackedScales {
  std::uint8_t bytes[12] = {};
  void set(int s, int a, int b) {
    if (s < 4) {
      bytes[s] = static_cast<std::uint8_t>(bytes[s] | a);
      bytes[4 + s] = static_cast<std::uint8_t>(bytes[4 + s] | b);
    } else {
      bytes[4 + s] = static_cast<std::uint8_t>((a & 15) | (b & 15) << 4);
      bytes[s - 4] = static_cast<std::uint8_t>(bytes[s - 4] | (a >> 4) << 6);
      bytes[s] = static_cast<std::uint8_t>(bytes[s] | (b >> 4) << 6);
    }
  }
};

TEST(KBlocks, SixBitScalesUnpack) {
  PackedScales packed;
  const int a[8] = {1, 63, 0, 42, 17, 48, 63, 5}, b[8] = {60, 2, 33, 0, 16, 63, 1, 47};
  for (int s = 0; s < 8; ++s) packed.set(s, a[s], b[s]);
  for (int s = 0; s < 8; ++s) {
    EXPECT_EQ(unpack_sub_block(packed.bytes, s).scale, a[s]);
    EXPECT_EQ(unpack_sub_block(packed.bytes, s).min, b[s]);
  }
  PackedScales two;
  two.bytes[1] = 0xC5;
  two.bytes[9] = 0x2B;
  EXPECT_EQ(unpack_sub_block(two.bytes, 1).scale, 5);               // the low six bits of byte 1
  EXPECT_EQ(unpack_sub_block(two.bytes, 5).scale, (3 << 4) | 0xB);  // its high two, and 0x.B
}

// Weights of Q5_K and Q6_K find their bits.
void add_bits(std::uint8_t& byte, int bits) {
  byte = static_cast<std::uint8_t>(byte | bits);
}

TEST(KBlocks, WeightsFindTheirBits) {
  std::mt19937 draw(3);
  BlockQ5_K five{};
  BlockQ6_K six{};
  five.d = to_f16(0.5f), five.min = to_f16(0.25f), six.d = to_f16(0.125f);
  PackedScales packed;
  for (int s = 0; s < 8; ++s) packed.set(s, 3 + s, 60 - s);
  std::memcpy(five.scales, packed.bytes, 12);
  for (int s = 0; s < 16; ++s) six.scales[s] = static_cast<std::int8_t>(5 * s - 40);
  std::vector<int> q5(256), q6(256);
  for (int i = 0; i < 256; ++i) {
    q5[i] = static_cast<int>(draw() % 32), q6[i] = static_cast<int>(draw() % 64);
    add_bits(five.q[i / 64 * 32 + i % 32], (q5[i] & 15) << (i / 32 % 2 * 4));
    add_bits(five.high[i % 32], (q5[i] >> 4) << (i / 32));
    add_bits(six.low[i / 128 * 64 + i % 64], (q6[i] & 15) << (i / 64 % 2 * 4));
    add_bits(six.high[i / 128 * 32 + i % 32], (q6[i] >> 4) << (i / 32 % 4 * 2));
  }
  std::vector<float> y5(256), y6(256);
  dequantize_row(DType::q5_k, &five, y5.data(), 256);
  dequantize_row(DType::q6_k, &six, y6.data(), 256);
  for (int i = 0; i < 256; ++i) {
    const int s = i / 32;
    ASSERT_EQ(y5[i],
              0.5f * static_cast<float>((3 + s) * q5[i]) - 0.25f * static_cast<float>(60 - s))
        << i;
    ASSERT_EQ(y6[i], 0.125f * static_cast<float>((5 * (i / 16) - 40) * (q6[i] - 32))) << i;
  }
}

// Values that no block can hold are refused.
std::string refusal(DType type, float value, std::int64_t n = 32) {
  std::vector<float> x(32, 0.5f);
  x[7] = value;
  std::vector<std::byte> row(256);
  try {
    quantize_row(type, x.data(), row.data(), n);
  } catch (const core::Error& error) {
    return error.message();
  }
  return "";
}

TEST(Quantise, RefusesWhatItCannotHold) {
  for (const DType type : {DType::q8_0, DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1}) {
    EXPECT_THAT(refusal(type, std::numeric_limits<float>::quiet_NaN()),
                testing::HasSubstr("weight 7 of the row is nan"));
    EXPECT_THAT(refusal(type, -std::numeric_limits<float>::infinity()),
                testing::HasSubstr("weight 7 of the row is -inf"));
    EXPECT_THAT(refusal(type, 1e30f), testing::HasSubstr("cannot be quantised"));
    EXPECT_THAT(refusal(type, 0.0f, 31), testing::HasSubstr("31 weights is no whole number"));
    EXPECT_EQ(refusal(type, 1e-41f), "");
  }
  EXPECT_THAT(refusal(DType::q4_k, 0.0f, 0), testing::HasSubstr("not supported yet"));
}

}  // namespace
}  // namespace rose::kernels
