// Tests of the chapter "Tool calls in a stream of text".

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

#include "rose/core/json.h"
#include "rose/core/rng.h"
#include "rose/serve/tool_parser.h"

namespace rose::serve {
namespace {

// A message does not depend on where its text was cut.
struct Message {
  std::string content, reasoning;
  std::vector<std::pair<std::string, std::string>> calls;
  bool operator==(const Message&) const = default;
};

void add(Message& to, const MessageDelta& delta) {
  to.content += delta.content;
  to.reasoning += delta.reasoning;
  for (const auto& call : delta.calls) {
    if (call.index >= to.calls.size()) to.calls.resize(call.index + 1);
    to.calls[call.index].first += call.name;
    to.calls[call.index].second += call.arguments;
  }
}

Message parse(std::string_view text, const std::vector<std::size_t>& cuts, ParserOptions options) {
  ToolParser parser(options);
  Message message;
  std::size_t at = 0;
  for (const std::size_t cut : cuts) {
    add(message, parser.push(text.substr(at, cut - at)));
    at = cut;
  }
  add(message, parser.push(text.substr(at)));
  add(message, parser.finish());
  return message;
}

// The cases are those that have gone wrong elsewhere.
struct ToolCase {
  std::string text;
  Message expected;
  ParserOptions options{.tools = true, .reasoning = true};
};

const std::vector<ToolCase>& tool_cases() {
  static const std::vector<ToolCase> cases = {
      {"Nothing to call here, 1 < 2.", {"Nothing to call here, 1 < 2.", "", {}}},
      {"Wait.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"x\"}}\n</tool_call>",
       {"Wait.", "", {{"f", R"({"a": "x"})"}}}},
      {"<tool_call>{\"arguments\": {\"a\": [1, {\"b\": \"}\\\"</tool_call>\"}]}, \"name\": "
       "\"g\"}</tool_call>\n<tool_call>{\"name\":\"h\"}</tool_call>",
       {"", "", {{"g", "{\"a\": [1, {\"b\": \"}\\\"</tool_call>\"}]}"}, {"h", "{}"}}}},
      {R"(<tool_call>{"name": "s", "parameters": "{\"a\": 1}"}</tool_call>)",
       {"", "", {{"s", R"({"a": 1})"}}}},
      {"<tool_call>no json</tool_call>", {"<tool_call>no json</tool_call>", "", {}}},
      {"<tool_call>{\"name\": \"cut\", \"arguments\": {\"a\": 1", {"", "", {{"cut", "{\"a\": 1"}}}},
      {"<tool_call>{\"nam", {"<tool_call>{\"nam", "", {}}},
      {"<tool_<tool_call>{\"name\": \"x\", \"arguments\": 3}</tool_call> after",
       {"<tool_ after", "", {{"x", "3"}}}},
      {"<think>Two < three</thin</think>\n\nYes.  ", {"\n\nYes.  ", "Two < three</thin", {}}},
      {"<thing>", {"<thing>", "", {}}},
      {R"({"name": "b", "arguments": {"k": "<tool_call>"}})",
       {"", "", {{"b", R"({"k": "<tool_call>"})"}}},
       {.tools = true, .bare = true}},
      {R"(<tool_call>{"name":"a"}</tool_call><tool_call>{"name":"b"}</tool_call>)",
       {"", "", {{"a", "{}"}}},
       {.tools = true, .parallel = false}},
      {"no tools <tool_call>{}", {"no tools <tool_call>{}", "", {}}, {}},
  };
  return cases;
}

TEST(ToolParser, DoesNotCareWhereTextIsCut) {
  core::Rng rng(3);
  for (const auto& [text, expected, options] : tool_cases()) {
    ASSERT_EQ(parse(text, {}, options), expected)
        << text << "\ncontent: " << parse(text, {}, options).content;
    for (std::size_t i = 0; i <= text.size(); ++i)
      for (std::size_t j = i; j <= text.size(); ++j)
        ASSERT_EQ(parse(text, {i, j}, options), expected) << text << " at " << i << ", " << j;
    for (int round = 0; round < 50; ++round) {
      std::vector<std::size_t> cuts;
      for (std::size_t at = 0; at < text.size(); at += 1 + rng.below(4)) cuts.push_back(at);
      ASSERT_EQ(parse(text, cuts, options), expected);
    }
  }
}

// Soup is parsed the same for every cut.
TEST(ToolParser, ReadsSoupTheSameWayForEveryCut) {
  const std::vector<std::string> words = {"<tool_call>", "</tool_call>",
                                          "<think>",     "</think>",
                                          "{",           "}",
                                          "[",           "]",
                                          "\"",          "\\",
                                          ":",           ",",
                                          " ",           "\n",
                                          "\"name\"",    "\"arguments\"",
                                          "\"f\"",       "{\"name\": \"f\", \"arguments\": {}}",
                                          "1",           "x",
                                          "<",           "ü"};
  core::Rng rng(4);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (std::uint32_t n = rng.below(14); n > 0; --n)
      text += words[rng.below(static_cast<std::uint32_t>(words.size()))];
    const ParserOptions options{.tools = rng.below(4) > 0,
                                .bare = rng.below(8) == 0,
                                .reasoning = rng.below(2) == 0,
                                .parallel = rng.below(4) > 0};
    std::vector<std::size_t> every;
    for (std::size_t at = 0; at < text.size(); ++at) every.push_back(at);
    ASSERT_EQ(parse(text, every, options), parse(text, {}, options)) << text;
  }
}

}  // namespace
}  // namespace rose::serve
