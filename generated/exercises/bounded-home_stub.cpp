// An exercise of the chapter "Serving beyond one machine".

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
#include <numeric>

#include "labs/evidence/values.h"
#include "labs/inference/routing.h"
#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/serve/replicas.h"

namespace rose::labs {
namespace {

// Go home, or to the next that has room.

/// The replica, by its place in the list. `open` are the requests of each.
std::size_t bounded_home(std::uint64_t, const std::vector<std::uint64_t>&, const std::vector<int>&,
                         double) {
  return 0;
}

// Home while there is room, and never over the bound.
TEST(BoundedHome, IsHomeUntilItIsFull) {
  const std::vector<std::uint64_t> replicas{3, 1, 4, 15};
  for (std::uint64_t text = 0; text < 200; ++text)
    EXPECT_EQ(bounded_home(text, replicas, {0, 0, 0, 0}, 1.25), home_of(text, replicas));
  std::vector<int> open(4, 0);
  for (int i = 0; i < 1000; ++i) {  // everybody asks about one text
    ++open[bounded_home(7, replicas, open, 1.25)];
    EXPECT_LE(*std::ranges::max_element(open), std::ceil(1.25 * (i + 1) / 4));
  }
  std::vector<std::uint64_t> rest = replicas;  // what does not fit goes to the second in the order
  rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(home_of(7, replicas)));
  const std::uint64_t second = rest[home_of(7, rest)];
  std::vector<int> full(4, 0);
  full[home_of(7, replicas)] = 100;
  EXPECT_EQ(replicas[bounded_home(7, replicas, full, 1.0)], second);
}

}  // namespace
}  // namespace rose::labs
