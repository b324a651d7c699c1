// Tests of the chapter "The GPU as a machine, the roofline and the instruments".

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
#include "labs/gpu/costs.h"
#include "labs/gpu/gpu_test.h"
#include "labs/gpu/ladder.h"
#include "labs/gpu/rung.h"
#include "rose/core/error.h"
#include "rose/kernels/dtype.h"
#include "rose/kernels/gpu/buffer.h"
#include "rose/kernels/gpu/instruments.h"
#include "rose/kernels/gpu/roofline.h"
#include "rose/kernels/gpu/stream.h"

namespace rose::kernels::gpu {
namespace {

// The example's numbers.
TEST(Roofline, DecodingIsBoundByMemoryAndTrainingByArithmetic) {
  const Ceilings h200{.flops = 989e12, .bytes = 4.4e12};
  const Cost decode = linear_cost(1, 4096, 4096, 2, 2);
  const Cost train = linear_cost(4096, 4096, 4096, 2, 2);
  EXPECT_NEAR(decode.flops / decode.bytes, 1, 0.01);
  EXPECT_NEAR(floor_us(decode, h200), 7.6, 0.05);
  EXPECT_NEAR(train.flops / train.bytes, 1365, 1);
  EXPECT_NEAR(floor_us(train, h200), 139, 0.5);
  EXPECT_NEAR(h200.flops / h200.bytes, 225, 0.5);
}

}  // namespace
}  // namespace rose::kernels::gpu

namespace rose::labs {
namespace {

// Prompts are bound by arithmetic, new tokens by memory.
TEST(Costs, PromptsAreBoundByArithmeticAndNewTokensByMemory) {
  const kernels::gpu::Ceilings h200{.flops = 989e12, .bytes = 4.8e12};
  const Cost prompt = prefill_cost(4096, 32, 8, 128, 2),
             token = decode_cost(64, 4096, 32, 8, 128, 2);
  const Cost norm = norm_cost(4096, 4096, 2),
             layer = kernels::gpu::linear_cost(256, 4096, 4096, 2, 2);
  EXPECT_NEAR(prompt.flops, 137.47e9, 0.01e9);
  EXPECT_NEAR(prompt.bytes, 83.886e6, 1e3);
  EXPECT_GT(prompt.flops / prompt.bytes, h200.flops / h200.bytes);
  EXPECT_NEAR(token.flops / token.bytes, 2 * 32 / 8 / 2.0,
              0.01);  // 2H/G operations a number of 2 bytes
  EXPECT_NEAR(norm.flops / norm.bytes, 1, 0.001);
  const std::string test = "gpu-costs-test";  // the explorer below is compared with these
  const std::pair<const char*, Cost> all[] = {
      {"prefill", prompt}, {"decode", token}, {"norm", norm}, {"linear", layer}};
  for (const auto& [name, cost] : all) {
    write_value(test, std::string(name) + "_flops", cost.flops);
    write_value(test, std::string(name) + "_bytes", cost.bytes);
    write_value(test, std::string(name) + "_us", kernels::gpu::floor_us(cost, h200));
  }
}

}  // namespace
}  // namespace rose::labs

namespace rose::kernels::gpu {
namespace {

// Arguments are refused by name, before any device is asked.
template <class F>
core::Error refusal(F&& call) {
  try {
    call();
  } catch (const core::Error& error) {
    return error;
  }
  return {core::Code::internal, "nothing was refused"};
}

TEST(Stream, ArgumentsAreRefusedByName) {
  alignas(16) std::array<float, 4> memory{};
  const Matrix good{.data = memory.data(), .dtype = DType::f32, .rows = 2, .cols = 2};
  check_matrix(good, "x");
  check_matrix({.data = nullptr, .rows = 0, .cols = 5}, "x");  // empty: no memory needed
  Matrix bad = good;
  bad.rows = -1;
  EXPECT_EQ(refusal([&] { check_matrix(bad, "x"); }).argument(), "x");
  bad = good;
  bad.stride = 1;
  EXPECT_THAT(refusal([&] { check_matrix(bad, "x"); }).message(), testing::HasSubstr("1 apart"));
  bad = good;
  bad.data = reinterpret_cast<std::byte*>(memory.data()) + 2;
  EXPECT_THAT(refusal([&] { check_matrix(bad, "x"); }).message(),
              testing::HasSubstr("multiple of 4"));
  bad.dtype = DType::q8_0;
  EXPECT_THAT(refusal([&] { check_matrix(bad, "x"); }).message(), testing::HasSubstr("q8_0"));
  EXPECT_THAT(refusal([&] { check_matrix(good, "y", 2, 3, DType::f32); }).message(),
              testing::HasSubstr("2 by 3"));
  EXPECT_EQ(refusal([&] {
              check_workspace({memory.data(), 16}, 32);
            }).code(),
            core::Code::resource_exhausted);
}

// Medians, spreads and copies.
TEST(Instruments, SamplesBecomeAMedianAndASpread) {
  std::vector<double> samples;
  for (int i = 11; i > 0; --i) samples.push_back(i);
  const Timing timing = summarise(samples);
  EXPECT_EQ(timing.median_us, 6);
  EXPECT_EQ(timing.p10_us, 2);
  EXPECT_EQ(timing.p90_us, 10);
  EXPECT_EQ(timing.samples_us.front(), 11);
  EXPECT_EQ(summarise({4, 2}).median_us, 3);
  EXPECT_EQ(summarise({}).median_us, 0);
  EXPECT_EQ(copies_past_l2(20e6, 60e6), 12);
  EXPECT_EQ(copies_past_l2(1e12, 60e6), 2);
  EXPECT_EQ(copies_past_l2(0, 60e6), 64);
  EXPECT_EQ(describe(Clocks{.sm_mhz = 1980, .watts = 639.6}), "SM 1980 MHz, 640 W");
  EXPECT_EQ(describe(Clocks{}), "clocks and power are not readable");
}

// The frame itself works on a device.
TEST_F(GpuTest, MatricesComeBackAndGuardsHold) {
  const std::vector<float> values = random_values(15, 1);
  const DeviceMatrix matrix = DeviceMatrix::of(values, 3, 5, DType::bf16, {.gap = 3, .offset = 1});
  const std::vector<float> back = matrix.values();
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(back[i], rounded(values[i], DType::bf16));
  matrix.expect_guards("matrix");
  for (const float value : DeviceMatrix(2, 2, DType::f16).values()) EXPECT_TRUE(std::isnan(value));
}

TEST_F(GpuTest, PlainSweepsReachABandwidthThatIsPossible) {
  const Bandwidth bandwidth = measure_bandwidth();
  const DeviceInfo info = device_info();
  std::printf("%s: read %.2f, copy %.2f, write %.2f TB/s, SM clock %d MHz\n", info.name.c_str(),
              1e-12 * bandwidth.read, 1e-12 * bandwidth.copy, 1e-12 * bandwidth.write,
              read_clocks().sm_mhz);
  EXPECT_GT(bandwidth.read, 0.1e12);
  EXPECT_LT(bandwidth.read, 10e12);
  EXPECT_GT(info.multiprocessors, 0);
}

TEST(Buffer, ABuildWithoutCudaSaysSo) {
  if (available()) GTEST_SKIP() << "there is a device";
  EXPECT_THROW(Buffer(16), core::Error);
  EXPECT_EQ(Buffer().bytes(), 0u);
}

}  // namespace
}  // namespace rose::kernels::gpu
