// An exercise of the chapter "Transpose".

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

// Permute the pairs by the row.
int narrow_place(int row, int pair) {
  return row * 32 + (pair ^ (row % 32));
}

// Rows and columns touch every bank once.
TEST(NarrowPlace, TouchesEveryBankOnce) {
  for (int row = 0; row < 64; ++row)
    EXPECT_EQ(bank_cycles([&](int lane) { return narrow_place(row, lane); }, 32, 1), 1) << row;
  for (int pair = 0; pair < 32; ++pair) {
    for (const int first : {0, 32})
      EXPECT_EQ(bank_cycles([&](int lane) { return narrow_place(first + lane, pair); }, 32, 1), 1)
          << pair;
  }
}

}  // namespace
}  // namespace rose::labs
