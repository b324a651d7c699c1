// An exercise of the chapter "The training pipeline end to end".

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
#include "labs/rl/estimators.h"
#include "labs/rl/examples.h"
#include "labs/rl/pipeline.h"

namespace rose::labs {
namespace {

// Widen for the successes.
struct Attempt {
  int length;
  bool success;
};
enum class Window { keep, widen, refuse };

Window decide(std::span<const Attempt>, int /*limit*/, double /*quantile*/, int /*margin*/) {
  return Window::keep;
}

// Keeps, widens, and refuses to feed failures.
TEST(PipelineWindow, KeepsWidensAndRefuses) {
  std::vector<Attempt> short_ones(20, {100, true});
  EXPECT_EQ(decide(short_ones, 1000, 0.9, 50), Window::keep);
  std::vector<Attempt> near = short_ones;
  for (std::size_t i = 0; i < 4; ++i) near[i].length = 990;
  EXPECT_EQ(decide(near, 1000, 0.9, 50), Window::widen);
  EXPECT_EQ(decide(near, 1000, 0.75, 50), Window::keep);
  for (int i = 0; i < 10; ++i) near.push_back({i < 5 ? 1000 : 300, false});
  EXPECT_EQ(decide(near, 1000, 0.9, 50), Window::refuse);
  near[0].length = near[1].length = near[2].length = near[3].length = 1000;  // a fifth is cut
  EXPECT_EQ(decide(near, 1000, 0.9, 50), Window::widen);
  EXPECT_EQ(decide({}, 1000, 0.9, 50), Window::keep);
}

}  // namespace
}  // namespace rose::labs
