// An exercise of the chapter "Tensors, dtypes and floating point".

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

// Carry the lost part along.
float compensated_sum(std::span<const float> x) {
  float sum = 0, lost = 0;
  for (const float value : x) {
    const float term = value - lost;
    const float next = sum + term;
    lost = (next - sum) - term;  // exact: what `next` has too much
    sum = next;
  }
  return sum;
}

// Ten million tenths are a million.
TEST(Kahan, TenMillionTenthsAreAMillion) {
  const std::vector<float> tenths(10'000'000, 0.1f);
  const double exact = 10'000'000 * static_cast<double>(0.1f);
  EXPECT_NEAR(compensated_sum(tenths), exact, 2 * 0x1p-24 * exact + 0.0625);
}

}  // namespace
}  // namespace rose::kernels
