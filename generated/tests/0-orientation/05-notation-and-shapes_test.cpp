// Tests of the chapter "Notation and shapes".

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
#include "labs/notation/shape_walk.h"

namespace rose::labs {
namespace {

// The walk leaves the shapes of the table.
constexpr ModelShape smollm2{.vocab = 49152,
                             .layers = 30,
                             .hidden = 576,
                             .heads = 9,
                             .kv_heads = 3,
                             .head_dim = 64,
                             .ffn = 1536,
                             .tied_head = true};

TEST(ShapeWalk, LeavesTheShapesOfTheTable) {
  const auto steps = walk(smollm2, 8);
  EXPECT_THAT(steps[2].result, testing::ElementsAre(8, 9, 64));
  EXPECT_THAT(steps[3].result, testing::ElementsAre(8, 3, 64));
  EXPECT_THAT(steps[8].result, testing::ElementsAre(8, 1536));
  EXPECT_THAT(steps.back().result, testing::ElementsAre(8, 49152));
  for (const Step& step : steps) EXPECT_EQ(step.result[0], 8);
}

// The numbers of this chapter.
TEST(ShapeWalk, CountsWhatTheChapterSays) {
  ModelShape m = smollm2;
  EXPECT_EQ(parameters(m), 134'515'008);
  EXPECT_EQ((parameters(m) - m.vocab * m.hidden - m.hidden) / m.layers, 3'540'096);
  EXPECT_EQ(forward_flops(m, 0) / 1'000'000, 268);  // 268.96: the norms are no products
  EXPECT_EQ(forward_flops(m, 1) - forward_flops(m, 0), 69'120);
  EXPECT_EQ(forward_flops(m, 0) / 69'120, 3891);
  EXPECT_EQ(kv_bytes_per_token(m, 2), 23'040);
  EXPECT_EQ(kv_bytes_per_token(m, 2) * 8192, 188'743'680);
  m.kv_heads = 9;
  EXPECT_EQ(parameters(m) / 100'000, 1477);
  EXPECT_EQ(kv_bytes_per_token(m, 2), 3 * 23'040);
}

TEST(ShapeWalk, CountsGpt2WithItsBiases) {
  const std::int64_t v = 50257, t = 1024, c = 768, f = 3072, layers = 12;
  const std::int64_t attention = 4 * (c * c + c), feed_forward = f * c + f + c * f + c,
                     norms = 2 * (c + c);
  const std::int64_t n = v * c + t * c + layers * (attention + feed_forward + norms) + 2 * c;
  EXPECT_EQ(n, 124'439'808);
  write_value("shape-costs-test", "gpt2", static_cast<double>(n));
}

// Offsets and positions of packed sequences.
std::pair<std::vector<int>, std::vector<int>> pack(const std::vector<int>& lengths,
                                                   const std::vector<int>& first) {
  std::vector<int> offsets = {0}, positions;
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    offsets.push_back(offsets.back() + lengths[s]);
    for (int i = 0; i < lengths[s]; ++i) positions.push_back(first[s] + i);
  }
  return {offsets, positions};
}

TEST(Packing, GivesOffsetsAndPositions) {
  using Ints = std::vector<int>;
  EXPECT_EQ(pack({3, 1, 4}, {0, 0, 0}),
            (std::pair{Ints{0, 3, 4, 8}, Ints{0, 1, 2, 0, 0, 1, 2, 3}}));
  EXPECT_EQ(pack({2, 5, 1, 1}, {0, 0, 0, 0}),
            (std::pair{Ints{0, 2, 7, 8, 9}, Ints{0, 1, 0, 1, 2, 3, 4, 0, 0}}));
  EXPECT_EQ(pack({2, 5, 1, 1}, {0, 10, 0, 0}).second, (Ints{0, 1, 10, 11, 12, 13, 14, 0, 0}));
}

}  // namespace
}  // namespace rose::labs
