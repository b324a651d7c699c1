// An exercise of the chapter "Data parallel".

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

#include <fmt/format.h>

#include "labs/evidence/values.h"
#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/dist/collective_cost.h"
#include "rose/dist/collectives.h"
#include "rose/dist/simulated_wire.h"
#include "rose/model/weights.h"
#include "rose/trainer/cpu_compute.h"
#include "rose/trainer/data_parallel.h"
#include "rose/trainer/gradient_tree.h"
#include "rose/trainer/loop.h"

namespace rose::trainer {
namespace {

/// How many times as fast as one process P are, for a step of `seconds` and a gradient of `bytes`.
double speedup(const dist::WireCost& /*wire*/, int /*processes*/, double /*seconds*/,
               double /*bytes*/) {
  return 0;
}

TEST(Speedup, GrowsAndIsBounded) {
  const dist::WireCost wire{5e-6, 1 / 50e9};
  EXPECT_DOUBLE_EQ(speedup(wire, 1, 1.0, 1e9), 1.0);
  EXPECT_GT(speedup(wire, 8, 1.0, 1e9), 6.0);
  EXPECT_LT(speedup(wire, 8, 1.0, 1e9), 8.0);
  // all network: the time of two vectors
  EXPECT_NEAR(speedup({0, 1 / 50e9}, 1 << 20, 1.0, 1e9), 25.0, 0.1);
}

}  // namespace
}  // namespace rose::trainer
