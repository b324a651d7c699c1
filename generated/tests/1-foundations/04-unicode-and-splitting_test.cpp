// Tests of the chapter "Unicode and the pre-tokenizer".

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
#include "rose/text/code_point.h"
#include "rose/text/normalize.h"
#include "rose/text/split.h"
#include "rose/text/unicode.h"

namespace rose::text {
namespace {

// Every code point and every broken byte survives.
TEST(CodePoint, ReadingAndWritingIsTheIdentity) {
  const auto round_trip = [](const std::string& text) {
    std::string out;
    const auto* p = reinterpret_cast<const unsigned char*>(text.data());
    for (const auto* end = p + text.size(); p < end;) {
      const CodePoint c = read_code_point(p, end);
      put_code_point(out, c.value);
      p += c.size;
    }
    return out;
  };
  std::string all;
  for (std::uint32_t c = 0; c < invalid_byte; ++c) {
    if (c < 0xD800 || c > 0xDFFF) put_code_point(all, c);
  }
  EXPECT_EQ(round_trip(all), all);
  core::Rng bits(1);
  for (int i = 0; i < 20'000; ++i) {
    std::string noise;
    for (int n = 0; n < 12; ++n)
      noise.push_back(static_cast<char>(bits.next() % 3 == 0 ? bits.next() : 0x80 | bits.next()));
    ASSERT_EQ(round_trip(noise), noise);
  }
}

TEST(CodePoint, OnlyTheShortestFormOfARealCharacterIsOne) {
  const auto value = [](std::string_view s) {
    const auto* p = reinterpret_cast<const unsigned char*>(s.data());
    return read_code_point(p, p + s.size()).value;
  };
  EXPECT_EQ(value("\xC3\xA9"), 0xE9u);
  EXPECT_EQ(value("\xF0\x9F\x91\x8D"), 0x1F44Du);
  EXPECT_EQ(value("\xC0\x80"), invalid_byte + 0xC0);          // an overlong zero
  EXPECT_EQ(value("\xED\xA0\x80"), invalid_byte + 0xED);      // a surrogate
  EXPECT_EQ(value("\xF4\x90\x80\x80"), invalid_byte + 0xF4);  // above U+10FFFF
  EXPECT_EQ(value("\xE2\x82"), invalid_byte + 0xE2);          // cut short
}

// The engine's idea of letters, numbers and spaces.
TEST(CharClasses, AreThoseOfTheEngine) {
  const std::uint8_t* of = char_classes();
  for (const std::uint32_t c : {0x85u, 0xA0u, 0x1680u, 0x2003u, 0x3000u})
    EXPECT_TRUE(of[c] & space);
  for (const std::uint32_t c : {0x1Cu, 0x180Eu, 0x200Bu, 0xFEFFu})
    EXPECT_FALSE(of[c] & space);  // zero width, or nearly
  for (const std::uint32_t c : {0xBDu, 0x2167u, 0x664u, 0x3007u})
    EXPECT_TRUE(of[c] & number);     // ½ Ⅷ ٤ 〇
  EXPECT_TRUE(of[0x4E09] & letter);  // 三 is a letter
  EXPECT_EQ(
      of[0x301],
      other | word);  // an accent is no letter, yet part of a word to the special tokens' search
  EXPECT_EQ(of[invalid_byte + 0xFF], other);
  int disagreements = 0;
  for (std::uint32_t c = 0; c < invalid_byte; ++c) {
    disagreements += ((of[c] & number) != 0) != ((of[c] & numeric) != 0);
  }
  labs::write_value("test-classes", "numeric-only", disagreements);
  EXPECT_GT(disagreements, 0);
}

// Canonically equal spellings become one, and stay it.
TEST(Normalize, ComposesWhatCanBeComposed) {
  EXPECT_EQ(nfc("e\u0301"), "\u00e9");
  EXPECT_EQ(nfc("a\u0302\u0323"), "\u1ead");
  EXPECT_EQ(nfc("a\u0323\u0302"), "\u1ead");
  EXPECT_EQ(nfc("\u212b"), "\u00c5");              // a duplicate
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093c");        // an exception: taken apart for good
  EXPECT_EQ(nfc("\u1112\u1161\u11ab"), "\ud55c");  // 한
  EXPECT_EQ(nfc("a\u0301\u0301"),
            "\u00e1\u0301");  // the second accent is blocked by nothing, and has no pair
  EXPECT_EQ(nfc("plain \xFF text"), "plain \xFF text");
}

TEST(Normalize, TwiceIsOnce) {
  core::Rng bits(3);
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (int n = 0; n < 8; ++n) {
      const std::uint32_t bases[] = {'a',
                                     'e',
                                     0x1100 + bits.next() % 0x100,
                                     0xAC00 + bits.next() % 200,
                                     0x300 + bits.next() % 0x70,
                                     0x915};
      put_code_point(text, bases[bits.next() % 6]);
    }
    const std::string once = nfc(text);
    ASSERT_EQ(nfc(once), once);
    ASSERT_TRUE(!quick_check_nfc(text) || once == text);
  }
}

// Each family cuts as its expression says.
std::string cut(std::vector<SplitRule> rules, std::string_view text) {
  std::string out;
  split(rules, text, [&](std::string_view word) { (out += out.empty() ? "" : "·") += word; });
  return out;
}

TEST(Split, CutsOneSentenceFourWays) {
  const std::string_view text = "I'LL pay $1234.50,  won't I?\n\n  end";
  EXPECT_EQ(cut({SplitRule::gpt2}, text), "I·'·LL· pay· $·1234·.·50·,· · won·'t· I·?·\n\n · end");
  EXPECT_EQ(cut({SplitRule::digits, SplitRule::gpt2}, text),
            "I·'·LL· pay· $·1·2·3·4·.·5·0·,· · won·'t· I·?·\n\n · end");
  EXPECT_EQ(cut({SplitRule::llama3}, text), "I·'LL· pay· $·123·4·.·50·,· · won·'t· I·?\n\n· · end");
  EXPECT_EQ(cut({SplitRule::qwen2}, text),
            "I·'LL· pay· $·1·2·3·4·.·5·0·,· · won·'t· I·?\n\n· · end");
}

TEST(Split, GivesBackOneSpaceAndNests) {
  EXPECT_EQ(cut({SplitRule::gpt2}, "a   b"), "a·  · b");
  EXPECT_EQ(cut({SplitRule::gpt2}, "a   "), "a·   ");
  EXPECT_EQ(cut({SplitRule::digits, SplitRule::gpt2}, "a  1"), "a·  ·1");
  EXPECT_EQ(cut({SplitRule::gpt2}, "a  1"), "a· · 1");
  EXPECT_EQ(cut({SplitRule::llama3}, "x \n \n y"), "x· \n \n· y");
  EXPECT_EQ(cut({SplitRule::llama3}, "it'\u017f"), "it·'\u017f");
}

// Words concatenate to the text, in linear time.
TEST(Split, LosesNothing) {
  const std::vector<std::vector<SplitRule>> families = {{SplitRule::gpt2},
                                                        {SplitRule::llama3},
                                                        {SplitRule::qwen2},
                                                        {SplitRule::digits, SplitRule::gpt2},
                                                        {SplitRule::digit_groups}};
  core::Rng bits(5);
  for (int i = 0; i < 5'000; ++i) {
    std::string text;
    for (int n = 0; n < 20; ++n)
      text.push_back(" '\nsLl1a.\r\xC2\xA0\xE2\xFF\t9"[bits.next() % 17]);
    for (const auto& rules : families) {
      std::string joined;
      split(rules, text, [&](std::string_view word) {
        ASSERT_FALSE(word.empty());
        joined += word;
      });
      ASSERT_EQ(joined, text);
    }
  }
  for (const char c : {' ', '\n', '\'', '9'}) {
    const std::string run = "a" + std::string(1 << 22, c) + "b";
    std::size_t bytes = 0;
    for (const auto& rules : families) {
      split(rules, run, [&](std::string_view word) { bytes += word.size(); });
    }
    EXPECT_EQ(bytes, families.size() * run.size());
  }
}

}  // namespace
}  // namespace rose::text
