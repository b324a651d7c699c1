// An exercise of the chapter "The trajectory contract".

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
#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/rng.h"
#include "rose/rlhf/trajectory.h"
#include "rose/rlhf/trajectory_bytes.h"
#include "rose/rlhf/trajectory_file.h"
#include "rose/rlhf/trajectory_json.h"
#include "rose/rlhf/transcript.h"

namespace rose::rlhf {
namespace {

// Count on, or begin.
using Runs = std::vector<std::pair<std::int64_t, std::size_t>>;

Runs version_runs(std::span<const std::int64_t> versions) {
  Runs runs;
  for (const std::int64_t version : versions) {
    if (version < 0) continue;
    if (runs.empty() || runs.back().first != version) runs.emplace_back(version, 0);
    ++runs.back().second;
  }
  return runs;
}

// Observations do not end a run.
TEST(VersionRuns, SkipObservations) {
  const std::vector<std::int64_t> versions = {-1, 3, 3, -1, 3, 4, -1, -1, 4, 3};
  EXPECT_EQ(version_runs(versions), (Runs{{3, 3}, {4, 2}, {3, 1}}));
  EXPECT_TRUE(version_runs(std::vector<std::int64_t>{-1, -1}).empty());
}

}  // namespace
}  // namespace rose::rlhf
