// An exercise of the chapter "A matrix product in fp32, rung by rung".

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
#include "labs/gpu/banks.h"
#include "labs/gpu/gpu_test.h"
#include "labs/gpu/matmul.h"
#include "rose/core/error.h"

namespace rose::labs {
namespace {

// Divide the tiles by the places of all waves.
double wave_share(std::int64_t tiles, std::int64_t places) {
  const std::int64_t waves = (tiles + places - 1) / places;
  return static_cast<double>(tiles) / static_cast<double>(waves * places);
}

// The last wave counts whole.
TEST(WaveShare, TheLastWaveCountsWhole) {
  EXPECT_NEAR(wave_share(1024, 264), 0.970, 0.001);  // 32 x 32 tiles, two blocks on each of 132
  EXPECT_NEAR(wave_share(512, 264), 0.970, 0.001);
  EXPECT_NEAR(wave_share(512, 132), 0.970, 0.001);
  EXPECT_NEAR(wave_share(133, 132), 0.504, 0.001);
  EXPECT_EQ(wave_share(264, 264), 1.0);
}

}  // namespace
}  // namespace rose::labs
