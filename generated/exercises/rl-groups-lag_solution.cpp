// An exercise of the chapter "Rollout systems".

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
#include "labs/information/information.h"
#include "labs/rl/schedule.h"
#include "rose/core/rng.h"

namespace rose::labs {
namespace {

// The last to end against the first to be born.
struct Finished {
  int born, ended;  // versions of the weights
};

std::vector<int> group_lags(const std::vector<Finished>& episodes, std::size_t group) {
  std::vector<int> lags;
  for (std::size_t first = 0; first + group <= episodes.size(); first += group) {
    int born = episodes[first].born, ended = episodes[first].ended;
    for (std::size_t i = first; i < first + group; ++i) {
      born = std::min(born, episodes[i].born);
      ended = std::max(ended, episodes[i].ended);
    }
    lags.push_back(ended - born);
  }
  return lags;
}

// A group is as old as its first token when its last one comes.
TEST(GroupLags, AreThoseOfTheSlowestMember) {
  const std::vector<Finished> episodes = {{0, 0}, {0, 3}, {1, 1}, {1, 1}, {2, 2}, {3, 7}, {4, 4}};
  EXPECT_EQ(group_lags(episodes, 2), (std::vector<int>{3, 0, 5}));  // the last is not complete
  EXPECT_EQ(group_lags(episodes, 1).size(), 7u);
  EXPECT_EQ(group_lags(episodes, 7), std::vector<int>{7});
}

}  // namespace
}  // namespace rose::labs
