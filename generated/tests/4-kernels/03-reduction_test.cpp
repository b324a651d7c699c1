// Tests of the chapter "Reduction, and adding up a row in one order".

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
#include "labs/gpu/reduce.h"
#include "rose/core/error.h"
#include "rose/kernels/dtype.h"
#include "rose/kernels/rows.h"

namespace rose::kernels {
namespace {

// Compare the rule with exact sums and with a worked example.
TEST(Rows, AddsWithinTheLengthOfItsChain) {
  std::mt19937 bits(11);
  std::uniform_real_distribution<float> draw(0.0f, 1.0f);
  for (const std::int64_t n : {1, 7, 8, 9, 255, 256, 2047, 2048, 2049, 4096, 50'257}) {
    std::vector<float> x(static_cast<std::size_t>(n));
    double exact = 0.0;
    for (float& value : x) exact += static_cast<double>(value = draw(bits));
    const float sum = reference::row_total(
        n, [&](float s, std::int64_t k) { return s + x[static_cast<std::size_t>(k)]; });
    const double links = 8.0 * static_cast<double>((n + 2047) / 2048) + 8.0;
    EXPECT_LE(std::fabs(static_cast<double>(sum) - exact), links * 0x1p-24 * exact) << n;
  }
}

TEST(Rows, SlotsAreChains) {
  // 2^24 swallows a one that is added to it alone: the chain of slot 0 loses both of its ones,
  // a one in the next group is a slot of its own and loses itself, and two there survive together.
  const auto total = [](const std::vector<float>& x) {
    return reference::row_total(static_cast<std::int64_t>(x.size()), [&](float s, std::int64_t k) {
      return s + x[static_cast<std::size_t>(k)];
    });
  };
  EXPECT_EQ(total({0x1p24f, 1, 1, 0, 0, 0, 0, 0}), 0x1p24f);
  EXPECT_EQ(total({0x1p24f, 0, 0, 0, 0, 0, 0, 0, 1, 1}), 0x1p24f + 2.0f);
}

}  // namespace
}  // namespace rose::kernels

namespace rose::labs {
namespace {

// Every rung adds up every number once.
using ReduceGpu = gpu::GpuTest;

TEST_F(ReduceGpu, EveryRungAddsEveryNumberOnce) {
  std::vector<std::pair<std::string, Reduce*>> all;
  for (const auto& rung : reduce_ladder()) all.emplace_back(rung.name, rung.launch);
  all.emplace_back("library", reduce_library());
  for (const std::int64_t count : {0, 1, 3, 255, 257, 513, 65'536, 1'000'003}) {
    std::vector<float> values(static_cast<std::size_t>(count));
    double exact = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      exact += static_cast<double>(values[i] = static_cast<float>(i % 13) - 4);
    const gpu::Buffer in = gpu::Buffer::of(std::span<const float>(values)),
                      memory(reduce_workspace(count));
    gpu::Buffer out(sizeof(float));
    for (const auto& [name, reduce] : all) {
      out.poison();
      reduce(in.as<float>(), count, out.as<float>(), memory.workspace(), {});
      gpu::synchronize({});
      EXPECT_EQ(static_cast<double>(out.values<float>()[0]), exact) << name << ", " << count;
      reduce(in.as<float>(), count, out.as<float>(), memory.workspace(), {});
      gpu::synchronize({});
      EXPECT_EQ(static_cast<double>(out.values<float>()[0]), exact) << name << ", again";
    }
  }
}

TEST(ReduceArguments, ANegativeCountIsRefused) {
  EXPECT_THROW(reduce_workspace(-1), core::Error);
}

}  // namespace
}  // namespace rose::labs
