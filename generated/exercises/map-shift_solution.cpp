// An exercise of the chapter "Curriculum map: one token, twelve times".

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

namespace rose::labs {
namespace {

// Which logits are trained.
std::vector<int> loss_weights(std::span<const int> row_offsets, std::span<const bool> sampled) {
  std::vector<int> weights(sampled.size());
  for (std::size_t row = 0; row + 1 < row_offsets.size(); ++row) {
    const auto begin = static_cast<std::size_t>(row_offsets[row]);
    const auto end = static_cast<std::size_t>(row_offsets[row + 1]);
    for (std::size_t t = begin; t + 1 < end; ++t) weights[t] = sampled[t + 1] ? 1 : 0;
  }
  return weights;
}

// The last position of a row predicts nothing.
TEST(MapShift, TheLastPositionOfARowPredictsNothing) {
  const std::array rows = {0, 4, 7};
  const std::array<bool, 7> sampled = {false, false, true, true, true, false, true};
  EXPECT_EQ(loss_weights(rows, sampled), (std::vector<int>{0, 1, 1, 0, 0, 1, 0}));
  int trained = 0;
  for (const int w : loss_weights(rows, sampled)) trained += w;
  EXPECT_EQ(trained, 3);  // the fifth token was sampled, but nothing before it predicts it
}

}  // namespace
}  // namespace rose::labs
