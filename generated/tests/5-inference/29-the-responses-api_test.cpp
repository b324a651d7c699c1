// Tests of the chapter "The responses API".

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
#include "rose/core/rng.h"
#include "rose/serve/response_form.h"
#include "rose/text/tokenizer.h"

namespace rose::serve {
namespace {

// However a response is cut, its events add up to its items.
struct Cut {
  json::array items;      // of the last event
  json::array assembled;  // from the deltas
};

Cut stream_of(const std::string& text, std::uint64_t seed) {
  static const text::Tokenizer tokenizer = [] {
    text::Vocab vocab;
    for (int byte = 0; byte < 256; ++byte) vocab.tokens.emplace_back(1, static_cast<char>(byte));
    return text::Tokenizer(std::move(vocab));
  }();
  ResponseForm form({}, false);
  form.start({.id = "resp_1", .model = "m", .tokenizer = &tokenizer});
  ToolParser parser({.tools = true, .reasoning = true});
  core::Rng rng(seed, 0);
  std::string events = form.opening();
  for (std::size_t at = 0; at < text.size();) {
    std::size_t n = std::min<std::size_t>(text.size() - at, 1 + rng.below(9));
    while (at + n < text.size() && (static_cast<unsigned char>(text[at + n]) & 0xc0U) == 0x80U)
      ++n;  // an event has whole characters
    ChoiceDelta delta;
    for (std::size_t i = at; i < at + n; ++i) delta.add_part(parser.push({&text[i], 1}));
    at += n;
    if (at == text.size()) delta.add_part(parser.finish());
    events += form.add(delta);
  }
  events += form.closing({});
  Cut out;
  std::int64_t number = 0;
  std::string grown;
  bool open = false;
  for (std::size_t at = 0; (at = events.find("data: ", at)) != std::string::npos; ++at) {
    const json::object e =
        core::parse_json(events.substr(at + 6, events.find("\n\n", at) - at - 6), "event")
            .as_object();
    EXPECT_EQ(e.at("sequence_number").as_int64(), number++);
    const std::string type(e.at("type").as_string());
    const bool opens = type == "response.output_item.added";
    EXPECT_FALSE(opens && open);
    open = open || opens;
    if (type.ends_with(".delta")) {
      EXPECT_TRUE(open);
      grown += e.at("delta").as_string();
    }
    if (type == "response.output_item.done") {
      EXPECT_TRUE(std::exchange(open, false));
      out.assembled.emplace_back(std::exchange(grown, {}));
    }
    if (type == "response.completed") out.items = e.at("response").at("output").as_array();
  }
  return out;
}

TEST(ResponseForm, EventsAddUpHoweverTheyAreCut) {
  const std::string call =
      "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"ü\"}}</tool_call>";
  const std::vector<std::string> texts = {"Grüße",
                                          "<think>hm</think>\nyes",
                                          call,
                                          "a\n" + call + "\nb\n" + call + call,
                                          "<think>so</think>" + call,
                                          "<tool_call>{\"nam"};
  for (const std::string& text : texts) {
    const Cut whole = stream_of(text, 0);
    ASSERT_EQ(whole.items.size(), whole.assembled.size());
    for (std::size_t i = 0; i < whole.items.size(); ++i) {
      const json::object& item = whole.items[i].as_object();
      EXPECT_EQ(
          item.contains("arguments") ? item.at("arguments") : item.at("content").at(0).at("text"),
          whole.assembled[i]);
    }
    for (std::uint64_t seed = 1; seed < 40; ++seed)
      EXPECT_EQ(json::value(stream_of(text, seed).items), json::value(whole.items)) << text;
  }
  const Cut mixed = stream_of("a\n" + call + "\nb", 3);
  ASSERT_EQ(mixed.items.size(), 3U);
  EXPECT_EQ(mixed.items[1].at("type").as_string(), "function_call");
  EXPECT_EQ(mixed.items[2].at("type").as_string(), "message");
}

}  // namespace
}  // namespace rose::serve
