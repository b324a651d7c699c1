// An exercise of the chapter "Terminology: what the words mean here".

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
#include "labs/rl/ledger.h"

namespace rose::labs {
namespace {

// The lag of every token.
std::vector<int> token_lags(const std::vector<Piece>&, int) {
  return {};
}

// As many numbers as tokens, and the harness has none.
TEST(TokenLags, BelongToTheTokensThatThePolicyDrew) {
  const std::vector<Piece> transcript = {
      {Owner::task, 2}, {Owner::policy, 3, 7}, {Owner::world, 1}, {Owner::policy, 1, 8}};
  EXPECT_EQ(token_lags(transcript, 9), (std::vector<int>{-1, -1, 2, 2, 2, -1, 1}));
  EXPECT_TRUE(token_lags({}, 9).empty());
  EXPECT_EQ(token_lags({{Owner::harness, 2, 3}}, 9), (std::vector<int>{-1, -1}));
}

}  // namespace
}  // namespace rose::labs
