// An exercise of the chapter "Collectives from first principles".

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
#include "rose/dist/group.h"
#include "rose/dist/simulated_wire.h"

namespace rose::dist {
namespace {

/// Bytes at which 2 (P - 1) (alpha + beta n / P) equals log2(P) (alpha + beta n). For P above 2.
double crossover(const WireCost& /*wire*/, int /*ranks*/) {
  return 0;
}

TEST(Crossover, BothCostTheSameThere) {
  for (const int ranks : {8, 16, 64}) {
    const WireCost wire{5e-6, 1 / 50e9};
    const double n = crossover(wire, ranks);
    EXPECT_NEAR(2 * collective_cost(Algorithm::ring, wire, ranks, n),
                collective_cost(Algorithm::doubling, wire, ranks, n), 1e-9);
    EXPECT_GT(n, 0);
  }
}

}  // namespace
}  // namespace rose::dist
