// An exercise of the chapter "Scan and compaction".

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
#include "labs/gpu/scan.h"
#include "rose/core/rng.h"

namespace rose::labs {
namespace {

// Combine two stretches of segments.
struct Stretch {
  bool starts = false;  // whether a segment starts in it
  int sum = 0;          // since the last start
  bool operator==(const Stretch&) const = default;
};

Stretch combine(Stretch left, Stretch right) {
  return {left.starts, left.sum + right.sum};
}

// It is associative, and scans to segments.
TEST(SegmentedAdd, ScansToSegments) {
  for (int a = 0; a < 8; ++a) {
    const Stretch x{(a & 1) != 0, 3}, y{(a & 2) != 0, 5}, z{(a & 4) != 0, 7};
    EXPECT_EQ(combine(combine(x, y), z), combine(x, combine(y, z)));
  }
  Stretch sum;
  std::vector<int> sums;
  for (const Stretch x : {Stretch{true, 1}, {false, 2}, {true, 3}, {false, 4}, {false, 5}})
    sums.push_back((sum = combine(sum, x)).sum);
  EXPECT_EQ(sums, (std::vector{1, 3, 3, 7, 12}));
}

}  // namespace
}  // namespace rose::labs
