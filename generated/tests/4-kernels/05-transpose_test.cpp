// Tests of the chapter "Transpose".

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

#include "labs/gpu/banks.h"
#include "labs/gpu/gpu_test.h"
#include "labs/gpu/transpose.h"
#include "rose/core/error.h"

namespace rose::labs {
namespace {

// Count the cycles of a column and of a row.
TEST(Banks, PaddingAndSwizzlingTouchEachOnce) {
  for (int line = 0; line < 32; ++line) {
    const auto column = [&](int width, int mask) {
      return bank_cycles([&](int lane) { return lane * width + (line ^ (lane & mask)); }, 32, 1);
    };
    const auto row = [&](int width, int mask) {
      return bank_cycles([&](int lane) { return line * width + (lane ^ (line & mask)); }, 32, 1);
    };
    EXPECT_EQ(column(32, 0), 32);  // as it stands
    EXPECT_EQ(column(33, 0), 1);   // padded
    EXPECT_EQ(column(32, 31), 1);  // swizzled
    EXPECT_EQ(row(32, 0), 1);
    EXPECT_EQ(row(33, 0), 1);
    EXPECT_EQ(row(32, 31), 1);
  }
}

// Count the cycles of the last rung.
TEST(Banks, GroupsTouchEachOnce) {
  const auto place = [](int row, int group) { return row * 64 + (group ^ (row / 4 % 8)) * 4; };
  for (int unit = 0; unit < 32; ++unit) {
    for (int e = 0; e < 4; ++e) {
      const auto gathers = [&](int lane) {
        const int row = (unit % 2 * 8 + lane % 8) * 4 + e, column = unit / 2 * 4 + lane / 8;
        return place(row, column / 4) + column % 4;
      };
      EXPECT_EQ(bank_cycles(gathers, 32, 1), 1) << unit;
    }
  }
  // Stores of 16 bytes go by eight lanes at a time.
  for (int row = 0; row < 64; ++row) {
    for (const int first : {0, 8})
      EXPECT_EQ(bank_cycles([&](int lane) { return place(row, first + lane); }, 8, 4), 1) << row;
  }
}

// Every rung moves every number to its place, and nothing else.
using TransposeGpu = gpu::GpuTest;

TEST_F(TransposeGpu, EveryRungIsAPermutation) {
  for (const auto& rung : transpose_ladder()) {
    for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                     {0, 5},
                                     {31, 33},
                                     {64, 64},
                                     {100, 260},
                                     {1, 1000},
                                     {516, 4}}) {
      if (std::string_view(rung.name) == "groups" && (rows % 4 != 0 || cols % 4 != 0)) {
        EXPECT_THROW(rung.launch(nullptr, nullptr, rows, cols, {}), core::Error);
        continue;
      }
      const auto in = gpu::DeviceMatrix::of(gpu::random_values(rows * cols, 1), rows, cols,
                                            kernels::DType::f32);
      const gpu::DeviceMatrix out(cols, rows, kernels::DType::f32);
      rung.launch(static_cast<const float*>(in.view().data), static_cast<float*>(out.view().data),
                  rows, cols, {});
      const std::vector<float> from = in.values(), to = out.values();
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < cols; ++c) {
          ASSERT_EQ(to[static_cast<std::size_t>(c * rows + r)],
                    from[static_cast<std::size_t>(r * cols + c)])
              << rung.name << ": row " << r << ", column " << c << " of " << rows << " x " << cols;
        }
      }
      out.expect_guards(rung.name);
    }
  }
}

}  // namespace
}  // namespace rose::labs
