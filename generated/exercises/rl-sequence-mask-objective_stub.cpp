// An exercise of the chapter "Policy objectives, in code".

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
#include "rose/core/rng.h"
#include "rose/rlhf/objective.h"
#include "rose/rlhf/policy_loss.h"
#include "rose/rlhf/presets.h"

namespace rose::rlhf {
namespace {

// Drop bad sequences that the policy has left.
std::vector<bool> masked_sequences(const PolicyBatch& batch, double) {
  return std::vector<bool>(batch.starts.size() - 1, true);
}

// Only bad and distant sequences go.
TEST(SequenceMask, DropsBadAndDistantSequences) {
  const std::vector<std::size_t> starts = {0, 2, 4, 6, 7};
  const std::vector<std::uint8_t> mask = {1, 1, 1, 1, 0, 1, 0};
  const std::vector<double> current = {-2, -2, -2, -2, 0, -1.1, 0},
                            old = {-1, -1, -1, -1, 9, -1, 9}, advantage = {-1, -1, 1, 1, 0, -1, 0};
  const PolicyBatch batch{starts, mask, current, old, {}, {}, advantage};
  EXPECT_EQ(masked_sequences(batch, 0.5), (std::vector<bool>{false, true, true, true}));
  EXPECT_EQ(masked_sequences(batch, 0.05), (std::vector<bool>{false, true, false, true}));
}

}  // namespace
}  // namespace rose::rlhf
