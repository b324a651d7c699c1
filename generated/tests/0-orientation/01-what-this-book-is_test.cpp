// Tests of the chapter "What this book is, and how to run it".

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
#include "labs/first/bigram.h"

namespace rose::labs {
namespace {

// Eight lines teach it something, and not as much as it thinks.
constexpr std::string_view the_sick_rose =
    "O Rose thou art sick.\nThe invisible worm,\nThat flies in the night\nIn the howling storm:\n"
    "Has found out thy bed\nOf crimson joy:\nAnd his dark secret love\nDoes thy life destroy.\n";
constexpr std::string_view the_lilly =
    "The modest Rose puts forth a thorn,\nThe humble Sheep a threatening horn:\n"
    "While the Lilly white shall in Love delight,\nNor a thorn, nor a threat stain her beauty "
    "bright.\n";

TEST(Bigram, LearnsFromEightLines) {
  Bigram model;
  EXPECT_DOUBLE_EQ(model.bits_per_byte(the_lilly), 8);  // it knows nothing
  EXPECT_NEAR(std::log2(49152), 15.58, 0.01);           // and would know as little of 49,152 tokens
  model.learn(the_sick_rose);
  const double seen = model.bits_per_byte(the_sick_rose), unseen = model.bits_per_byte(the_lilly);
  EXPECT_LT(seen, 4);
  EXPECT_LT(unseen, 8);
  EXPECT_LT(seen, unseen);
  double sum = 0;
  for (int b = 0; b < 256; ++b) sum += model.probability('h', static_cast<char>(b));
  EXPECT_NEAR(sum, 1, 1e-12);
  EXPECT_GT(model.probability('t', 'h'), 0.2);
  write_value("bigram-test", "seen", seen);
  write_value("bigram-test", "unseen", unseen);
}

TEST(Bigram, WritesAndTradesMemoryForCaution) {
  Bigram bold(0.0005), cautious(0.05);
  for (Bigram* model : {&bold, &cautious}) model->learn(the_sick_rose);
  std::mt19937 random(7);
  EXPECT_EQ(bold.write('T', 80, random),
            "Thes isimveck.\nAn Routowlig s sthe ist Rou torinist im:\nHarm,\nInd the foutrk le ");
  EXPECT_LT(bold.bits_per_byte(the_sick_rose), cautious.bits_per_byte(the_sick_rose));
  EXPECT_GT(bold.bits_per_byte(the_lilly), cautious.bits_per_byte(the_lilly));
}

// Two bytes of context memorise better and generalise worse.
TEST(Bigram, TwoBytesOfContextAreMostlyEmptyRows) {
  std::map<std::string_view, std::map<char, double>> rows;
  for (std::size_t i = 2; i < the_sick_rose.size(); ++i)
    ++rows[the_sick_rose.substr(i - 2, 2)][the_sick_rose[i]];
  const auto loss = [&](std::string_view text) {
    double bits = 0;
    for (std::size_t i = 2; i < text.size(); ++i) {
      auto& row = rows[text.substr(i - 2, 2)];
      double sum = 256 * 0.02;
      for (const auto& [byte, n] : row) sum += n;
      bits -= std::log2((row[text[i]] + 0.02) / sum);
    }
    return bits / static_cast<double>(text.size() - 2);
  };
  const double filled = static_cast<double>(rows.size());
  const double seen = loss(the_sick_rose), unseen = loss(the_lilly);
  Bigram one;
  one.learn(the_sick_rose);
  EXPECT_LT(seen, one.bits_per_byte(the_sick_rose));
  EXPECT_GT(unseen, one.bits_per_byte(the_lilly));
  write_value("bigram-longer-test", "filled", filled);
  write_value("bigram-longer-test", "unseen", unseen);
}

}  // namespace
}  // namespace rose::labs
