// Tests of the chapter "Structured output".

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

#include "rose/core/error.h"
#include "rose/core/parallel.h"
#include "rose/core/rng.h"
#include "rose/infer/automaton.h"
#include "rose/infer/byte_grammar.h"
#include "rose/infer/language.h"
#include "rose/infer/threads.h"
#include "rose/infer/token_trie.h"

namespace rose::infer {
namespace {

// Read a mask, and define it.
std::shared_ptr<const TokenTrie> trie_of(const std::vector<std::string>& tokens) {
  text::Vocab vocab;
  vocab.tokens = tokens;
  return std::make_shared<TokenTrie>(text::Tokenizer(std::move(vocab)));
}

std::vector<std::string> short_strings(const std::string& letters, std::size_t most) {
  std::vector<std::string> all{""};
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].size() < most)
      for (const char c : letters) all.push_back(all[i] + c);
  all.erase(all.begin());
  return all;
}

std::vector<std::int32_t> allowed(GrammarState& state, std::size_t vocab) {
  std::vector<std::uint32_t> words(vocab / 32 + 1);
  state.mask(words);
  std::vector<std::int32_t> ids;
  for (std::size_t v = 0; v < vocab; ++v)
    if ((words[v / 32] >> v % 32 & 1) != 0) ids.push_back(static_cast<std::int32_t>(v));
  return ids;
}

void expect_defined(GrammarState& state, std::size_t vocab) {
  std::vector<std::int32_t> accepted;
  for (std::size_t v = 0; v < vocab; ++v)
    if (state.clone()->accept(static_cast<std::int32_t>(v)))
      accepted.push_back(static_cast<std::int32_t>(v));
  ASSERT_EQ(allowed(state, vocab), accepted);
  ASSERT_TRUE(!accepted.empty() || state.can_end());
  ASSERT_EQ(accepted.empty(), state.must_end());
}

// Walk through forty random languages.
struct RandomLanguage {
  core::Rng rng;
  Language language{};
  std::vector<Language::Rule> rules{};

  Language::Expression expression(int depth) {
    switch (rng.below(depth > 0 ? 7 : 2)) {
      case 0: return language.literal(std::string(1, static_cast<char>('a' + rng.below(3))));
      case 1:
        return language.bytes(byte_range('a', static_cast<unsigned char>('a' + rng.below(3))));
      case 2: return language.choice({expression(depth - 1), expression(depth - 1)});
      case 3: return language.repeat(expression(depth - 1), 0, static_cast<int>(rng.below(3)));
      case 4: return language.repeat(expression(depth - 1), 1, Language::unbounded);
      case 5:  // a call that cannot come first
        return language.sequence(
            {language.literal("a"), language.call(rules[rng.below(3)]), expression(depth - 1)});
      default: return language.sequence({expression(depth - 1), expression(depth - 1)});
    }
  }
};

TEST(ByteGrammar, MasksAsDefined) {
  const auto tokens = short_strings("abc", 4);
  const auto trie = trie_of(tokens);
  int walked = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    RandomLanguage random{core::Rng(seed)};
    for (const char* name : {"p", "q", "r"}) random.rules.push_back(random.language.rule(name));
    for (const auto rule : random.rules) random.language.define(rule, random.expression(3));
    std::shared_ptr<const ByteGrammar> grammar;
    try {
      grammar = compile(random.language, random.rules[0], trie);
    } catch (const core::Error& e) {
      ASSERT_EQ(e.code(), core::Code::invalid_argument);  // the language is empty
      continue;
    }
    const auto state = grammar->start();
    for (int i = 0; i < 6 && !state->must_end(); ++i, ++walked) {
      expect_defined(*state, tokens.size());
      const auto ids = allowed(*state, tokens.size());
      state->accept(ids[random.rng.below(static_cast<std::uint32_t>(ids.size()))]);
    }
  }
  EXPECT_GT(walked, 60);
}

// Work the example by hand.
TEST(ByteGrammar, CountsWithItsStack) {
  Language language;
  const auto s = language.rule("s");
  language.define(s, language.choice({language.sequence({language.literal("a"), language.call(s),
                                                         language.literal("b")}),
                                      language.sequence({})}));
  const std::vector<std::string> tokens{"a", "b", "ab", "aab", "bb", "ba"};
  const auto grammar = compile(language, s, trie_of(tokens));
  const auto after = [&](const std::string& text) {
    const auto state = grammar->start();
    for (const char c : text) EXPECT_TRUE(state->accept(c == 'a' ? 0 : 1));
    std::string words;
    for (const auto id : allowed(*state, tokens.size()))
      words += tokens[static_cast<std::size_t>(id)] + " ";
    return words + (state->can_end() ? "end" : "") + "/" + state->forced();
  };
  EXPECT_EQ(after(""), "a ab aab end/");
  EXPECT_EQ(after("aa"), "a b ab aab bb /");
  EXPECT_EQ(after("aab"), "b /b");
  EXPECT_EQ(after("aaab"), "b bb /bb");
  EXPECT_EQ(after("aabb"), "end/");
}

// Refuse the empty, the endless and the huge.
core::Code refusal(const std::function<void(Language&, Language::Rule)>& define) {
  Language language;
  const auto root = language.rule("root");
  define(language, root);
  try {
    Automaton automaton(language, root);
  } catch (const core::Error& e) {
    return e.code();
  }
  return core::Code::internal;
}

TEST(Automaton, RefusesWhatHasNoTextOrTooManyStates) {
  EXPECT_EQ(refusal([](Language& l, auto root) { l.define(root, l.choice({})); }),
            core::Code::invalid_argument);
  EXPECT_EQ(refusal([](Language& l, auto root) {  // contains itself, without an alternative
              l.define(root, l.sequence({l.literal("["), l.call(root), l.literal("]")}));
            }),
            core::Code::invalid_argument);
  EXPECT_EQ(refusal([](Language& l, auto root) {
              const auto empty = l.rule("maybe");
              l.define(empty, l.optional(l.literal("x")));
              l.define(root, l.choice({l.sequence({l.call(empty), l.call(root), l.literal("a")}),
                                       l.literal("b")}));
            }),
            core::Code::unsupported);
  EXPECT_EQ(refusal([](Language& l, auto root) {
              const auto word = l.repeat(l.literal("abcdefgh"), 0, 1000);
              l.define(root, l.repeat(word, 0, 1000));
            }),
            core::Code::resource_exhausted);
}

// A thousand states share a handful of masks.
TEST(ByteGrammar, SharesTheMasksOfAlikeStates) {
  Language language;
  const auto root = language.rule("root");
  language.define(root, language.repeat(language.bytes(byte_range('a', 'c')), 0, 1000));
  const auto tokens = short_strings("abc", 4);
  const auto grammar = compile(language, root, trie_of(tokens));
  EXPECT_EQ(grammar->automaton().size(), 1001u);
  EXPECT_LE(grammar->mask_classes(), 7u);
  grammar->prepare(core::default_pool());
  const auto state = grammar->start();
  for (int i = 0; i < 997; ++i) state->accept(0);
  EXPECT_EQ(allowed(*state, tokens.size()).size(), 3u + 9 + 27);  // no token of four letters
  expect_defined(*state, tokens.size());
}

}  // namespace
}  // namespace rose::infer
