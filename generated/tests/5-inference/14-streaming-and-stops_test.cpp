// Tests of the chapter "Streaming and where the text ends".

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
#include "rose/core/rng.h"
#include "rose/core/utf8.h"
#include "rose/infer/stop_strings.h"
#include "rose/infer/text_stream.h"

namespace rose::infer {
namespace {

// Find what a search for each text alone finds.
struct Found {
  std::size_t end = std::string::npos, length = 0;
  std::int32_t text = -1;
  bool operator==(const Found&) const = default;
};

Found search_each(const std::string& text, const std::vector<std::string>& stops) {
  Found best;
  for (std::size_t i = 0; i < stops.size(); ++i) {
    const std::size_t at = text.find(stops[i]);
    if (at == std::string::npos) continue;
    const Found f{at + stops[i].size(), stops[i].size(), static_cast<std::int32_t>(i)};
    if (f.end < best.end || (f.end == best.end && f.length > best.length)) best = f;
  }
  return best;
}

std::size_t hold_by_definition(const std::string& text, const std::vector<std::string>& stops) {
  std::size_t longest = 0;
  for (const std::string& s : stops)
    for (std::size_t n = std::min(s.size() - 1, text.size()); n > longest; --n)
      if (text.ends_with(s.substr(0, n))) longest = n;
  return longest;
}

TEST(StopStrings, FindsWhatASearchForEachFinds) {
  core::Rng rng(2);
  const auto word = [&](std::uint32_t most) {
    std::string s(1 + rng.below(most), 'a');
    for (char& c : s) c = static_cast<char>('a' + rng.below(3));
    return s;
  };
  for (int i = 0; i < 3000; ++i) {
    std::vector<std::string> stops(1 + rng.below(6));
    for (std::string& s : stops) s = word(5);
    const std::string text = word(30);
    const StopStrings automaton(stops);
    Found found;
    std::int32_t state = 0;
    for (std::size_t n = 0; n < text.size() && found.text < 0; ++n) {
      state = automaton.next(state, text[n]);
      const std::int32_t match = automaton.match(state);
      if (match >= 0) {
        found = {n + 1, automaton.length(match), match};
      } else {
        ASSERT_EQ(automaton.depth(state), hold_by_definition(text.substr(0, n + 1), stops));
      }
    }
    ASSERT_EQ(found, search_each(text, stops)) << text;
  }
}

// Cut the same bytes into tokens in many ways.
text::Tokenizer pieces_tokenizer(const std::vector<std::string>& pieces) {
  text::Vocab vocab;
  for (int b = 0; b < 256; ++b) vocab.tokens.emplace_back(1, static_cast<char>(b));
  for (const std::string& piece : pieces) vocab.tokens.push_back(piece);
  return text::Tokenizer(std::move(vocab));
}

TEST(TextStream, GivesOneAnswerForEveryChunking) {
  core::Rng rng(4);
  const std::vector<std::string> letters{"a", "b", "é", "猫", "\xF0\x9F\x8C\xB9", "\xC3", "\x8C"};
  const auto random_text = [&](std::uint32_t most) {
    std::string s;
    for (std::uint32_t i = 1 + rng.below(most); i > 0; --i) s += letters[rng.below(7)];
    return s;
  };
  for (int i = 0; i < 400; ++i) {
    const std::string bytes = random_text(14), whole = core::repair_utf8(bytes);
    const auto asked = std::make_shared<Sampling>();
    for (std::uint32_t n = rng.below(4); n > 0; --n)
      asked->stop.push_back(core::repair_utf8(random_text(3)));
    asked->include_stop = rng.below(4) == 0;
    const Found found = search_each(whole, asked->stop);
    std::string expected = whole.substr(0, found.end);
    if (found.text >= 0 && !asked->include_stop) expected.resize(found.end - found.length);
    for (int way = 0; way < 8; ++way) {
      std::vector<std::string> pieces;
      for (std::size_t at = 0; at < bytes.size(); at += pieces.back().size())
        pieces.push_back(
            bytes.substr(at, 1 + rng.below(static_cast<std::uint32_t>(way < 4 ? 1 + 2 * way : 9))));
      TextStream stream(pieces_tokenizer(pieces), asked, {});
      std::string text;
      std::optional<Stop> stop;
      const auto take = [&](const Delta& delta) {
        ASSERT_TRUE(core::is_utf8(delta.text));
        text += delta.text;
        if (delta.stop) stop = delta.stop;
      };
      for (std::size_t t = 0; t < pieces.size(); ++t)
        take(stream.push(256 + static_cast<std::int32_t>(t)));
      take(stream.finish());
      ASSERT_EQ(text, expected) << "way " << way;
      ASSERT_EQ(stop ? stop->text : -1, found.text);
    }
  }
}

// End on tokens, on texts, and not too early.
struct Answer {
  std::string text;
  std::optional<Stop> stop;
};

Answer stream(const Sampling& asked, const std::string& letters, char eos = '.') {
  TextStream s(pieces_tokenizer({}), std::make_shared<Sampling>(asked),
               std::vector<std::int32_t>{eos});
  Answer answer;
  const auto take = [&](const Delta& d) {
    answer.text += d.text;
    if (d.stop) answer.stop = d.stop;
  };
  for (const char c : letters) take(s.push(c));
  take(s.finish());
  return answer;
}

TEST(TextStream, EndsWhereTheRequestSays) {
  EXPECT_EQ(stream({}, "THE.END").text, "THE");
  EXPECT_EQ(stream({}, "THE.END").stop, (Stop{.token = '.'}));
  EXPECT_EQ(stream({.ignore_eos = true}, "THE.END").text, "THE.END");
  EXPECT_EQ(stream({.include_stop = true}, "THE.END").text, "THE.");
  EXPECT_EQ(stream({.stop_token_ids = {'E'}}, "THE.END").text, "TH");
  const Sampling two{.stop = {"END", "DEN"}};
  EXPECT_EQ(stream(two, "THE DEN").text, "THE ");
  EXPECT_EQ(stream(two, "THE DEN").stop, (Stop{.text = 1}));
  EXPECT_EQ(stream(two, "THE DE").text, "THE DE");  // length: what was held back is free
  EXPECT_EQ(stream(two, "THE DE.").text, "THE DE");
  EXPECT_EQ(stream({.stop = {"N", "DEN"}}, "THE DEN").text, "THE ");  // the longest
  EXPECT_EQ(stream({.min_tokens = 4, .stop = {"a"}}, "aabaca").text, "aab");
  EXPECT_EQ(stream({.min_tokens = 3, .stop = {"ab"}}, "abcab").text, "abc");
}

// Hold back as much as the example says, at two steps per byte.
TEST(TextStream, HoldsBackExactly) {
  const auto asked = std::make_shared<Sampling>(Sampling{.stop = {"END", "DEN"}});
  const auto tokenizer = pieces_tokenizer({"THE ", "DE", "N", "EP"});
  TextStream stop(tokenizer, asked, {}), deep(tokenizer, asked, {});
  EXPECT_EQ(stop.push(256).text, "THE ");
  EXPECT_EQ(stop.push(257).text, "");
  EXPECT_EQ(stop.push(258).text, "");
  EXPECT_EQ(stop.push(257).text, "");  // after the stop
  deep.push(256);
  deep.push(257);
  EXPECT_EQ(deep.push(259).text, "DEEP");
}

TEST(StopStrings, CostsTwoStepsPerByte) {
  core::Rng rng(6);
  std::vector<std::string> stops;
  for (int i = 0; i < 5000; ++i) stops.push_back(std::string(rng.below(40), 'a') + "b");
  const StopStrings automaton(stops);
  std::int32_t state = 0;
  std::size_t links = 0, bytes = 0;
  for (; bytes < 100'000; ++bytes) {
    const std::size_t before = automaton.depth(state);
    state = automaton.next(state, rng.below(50) == 0 ? 'c' : 'a');
    links += before + 1 - automaton.depth(state);  // each link makes it at least one shallower
  }
  const double steps = 1 + static_cast<double>(links) / static_cast<double>(bytes);
  EXPECT_LE(steps, 2.0);
  labs::write_value("text-stream-hold-test", "steps", steps);
}

}  // namespace
}  // namespace rose::infer
