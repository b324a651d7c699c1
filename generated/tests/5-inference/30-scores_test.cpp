// Tests of the chapter "How likely is a text?".

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

#include "rose/core/json.h"
#include "rose/serve/scores.h"
#include "rose/text/tokenizer.h"

namespace rose::serve {
namespace {

// Which tokens are scored.
TEST(Scores, CountsFromTheFirstTokenThatHasAPast) {
  text::Vocab vocab;
  for (int byte = 0; byte < 256; ++byte) vocab.tokens.emplace_back(1, static_cast<char>(byte));
  ModelCard card{.name = "m", .aliases = {}, .tokenizer = text::Tokenizer(std::move(vocab))};
  card.positions = 100, card.vocab = 256;
  const auto read = [&](const json::object& body) { return read_scores(body, card); };
  const ScoreAsk alone = read({{"prompt", {"abc", "de"}}});
  EXPECT_EQ(alone.from, (std::vector<std::size_t>{1, 1}));
  EXPECT_EQ(alone.tokens[1], (std::vector<std::int32_t>{'d', 'e'}));
  const ScoreAsk after = read({{"query", "abc"}, {"items", {"d", "ef"}}});
  EXPECT_EQ(after.from, (std::vector<std::size_t>{3, 3}));
  EXPECT_EQ(after.tokens[1].size(), 5U);
  const ScoreAsk labels =
      read({{"query", "ab"}, {"items", {"c", "d"}}, {"label_token_ids", {120, 121}}});
  ASSERT_EQ(labels.questions.size(), 4U);
  EXPECT_EQ(labels.tokens[3], (std::vector<std::int32_t>{'a', 'b', 'd', 121}));
  EXPECT_EQ(labels.from[3], 3U);
  const ScoreAsk turned = read({{"query", "ab"},
                                {"items", {"c"}},
                                {"label_token_ids", json::array{120}},
                                {"item_first", true}});
  EXPECT_EQ(turned.tokens[0], (std::vector<std::int32_t>{'c', 'a', 'b', 120}));
  for (const json::object& wrong :
       std::vector<json::object>{{{"prompt", "a"}},
                                 {{"query", ""}, {"items", {"a"}}},
                                 {{"query", "a"}, {"items", {""}}},
                                 {{"query", "a"}},
                                 {{"query", "a"}, {"items", {"b"}}, {"apply_softmax", true}},
                                 {{"prompt", std::string(100, 'x')}}})
    EXPECT_THROW(read(wrong), ApiError) << json::serialize(wrong);
}

}  // namespace
}  // namespace rose::serve
