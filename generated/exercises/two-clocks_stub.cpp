// An exercise of the chapter "Benchmarking a server honestly".

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

#include "labs/inference/serving.h"
#include "rose/core/error.h"
#include "rose/serve/bench_client.h"
#include "rose/serve/bench_plan.h"
#include "rose/serve/bench_plot.h"
#include "rose/serve/bench_reading.h"
#include "rose/serve/bench_report.h"
#include "rose/serve/bench_servers.h"
#include "rose/serve/http_server.h"

namespace rose::serve {
namespace {

// Wait by two clocks.
struct Waits {
  std::vector<double> by_user, by_client;
};
/// `due` in order, `takes` of each; one at a time.
Waits wait_by_two_clocks(std::span<const double> due, std::span<const double>) {
  return {std::vector<double>(due.size()), std::vector<double>(due.size())};
}

// Only one clock sees the overload.
TEST(TwoClocks, OnlyOneSeesTheOverload) {
  const std::vector<double> due{0, 1, 2, 3}, takes(4, 30.0);
  const Waits busy = wait_by_two_clocks(due, takes);
  EXPECT_EQ(busy.by_user, (std::vector<double>{30, 59, 88, 117}));
  EXPECT_EQ(busy.by_client, takes);
  const std::vector<double> rare{0, 100, 200, 300};
  EXPECT_EQ(wait_by_two_clocks(rare, takes).by_user, takes) << "they agree where nobody waits";
}

}  // namespace
}  // namespace rose::serve
