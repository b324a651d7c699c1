// Tests of the chapter "Patterns, grammars and JSON schemas".

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

#include <functional>
#include <map>

#include "rose/core/error.h"
#include "rose/core/json.h"
#include "rose/core/rng.h"
#include "rose/core/utf8.h"
#include "rose/infer/char_set.h"
#include "rose/infer/cpu_runner.h"
#include "rose/infer/ebnf.h"
#include "rose/infer/engine.h"
#include "rose/infer/json_number.h"
#include "rose/infer/json_schema.h"
#include "rose/infer/regex.h"
#include "rose/infer/structured.h"
#include "rose/model/weights.h"

namespace rose::infer {
namespace {

// Match what Python's re and ECMAScript match.
bool matches(const Language& language, Language::Rule root, std::string_view text) {
  const Automaton automaton(language, root);
  Stacks stacks;
  std::vector<Thread> threads{{automaton.start(), -1}};
  close_threads(automaton, stacks, threads, 0);
  for (const char c : text) {
    const std::size_t before = threads.size();
    step_threads(automaton, stacks, threads, 0, before, static_cast<unsigned char>(c));
    threads.erase(threads.begin(), threads.begin() + static_cast<std::ptrdiff_t>(before));
  }
  return std::ranges::any_of(
      threads, [&](const Thread& t) { return t.stack < 0 && automaton.accepts(t.state); });
}

bool fits(std::string_view pattern, std::string_view text, bool whole = true,
          Spelling spelling = Spelling::utf8) {
  Language language;
  const auto root = language.rule("root");
  language.define(root, regex(language, pattern, spelling, whole));
  return matches(language, root, text);
}

TEST(Regex, MatchesWhatItSays) {
  EXPECT_TRUE(fits("[é-ţ]+", "éÿţ"));
  EXPECT_FALSE(fits("[é-ţ]+", "èé"));
  EXPECT_TRUE(fits("(a|bc)*?d{2,3}", "abcadd"));
  EXPECT_FALSE(fits("(a|bc)*d{2,3}", "abcad"));
  EXPECT_TRUE(fits(R"(\d{3}-[^\s\d]\.)", "123-x."));
  EXPECT_FALSE(fits(R"([^\s])", "\u00A0"));  // a space to some
  EXPECT_TRUE(fits("x{,2}{a}", "x{,2}{a}"));
  EXPECT_TRUE(fits("🌹|.", "猫"));
  EXPECT_TRUE(fits("b+", "abc", false));
  EXPECT_FALSE(fits("^b+", "abc", false));
  EXPECT_TRUE(fits("^b|c$", "abc", false));
  EXPECT_TRUE(fits(R"(^a"\n$)", R"(a\"\n)", false, Spelling::json_string));
  EXPECT_FALSE(fits(R"(^a"$)", R"(a")", false, Spelling::json_string));
}

TEST(Regex, SaysWhatItCannotDo) {
  const auto code = [](std::string_view pattern) {
    try {
      fits(pattern, "");
    } catch (const core::Error& e) {
      EXPECT_EQ(e.argument(), "pattern");
      return e.code();
    }
    return core::Code::internal;
  };
  for (const char* wrong : {"(", ")", "[a", "a**b)", "+", "[z-a]", "a{3,2}", "\\", "\\xg0"})
    EXPECT_EQ(code(wrong), core::Code::invalid_argument) << wrong;
  for (const char* beyond : {"(?=a)", "(a)\\1", "\\bword", "\\p{L}", "a^b", "(^a)"})
    EXPECT_EQ(code(beyond), core::Code::unsupported) << beyond;
}

// Read an arithmetic grammar, and point at mistakes.
bool derives(std::string_view grammar, std::string_view text) {
  Language language;
  const auto root = ebnf(language, grammar);
  return matches(language, root, text);
}

TEST(Ebnf, ReadsRulesOverSeveralLines) {
  const std::string_view sums = R"g(# sums of products
root ::= term ("+" term)*
term ::= factor
         ("*" factor)*   # may go on
factor ::= [0-9]+ | "(" root ")" | [^\x00-\x7F]{2,3}
)g";
  EXPECT_TRUE(derives(sums, "1+2*(3+45)"));
  EXPECT_TRUE(derives(sums, "猫犬*7"));
  EXPECT_FALSE(derives(sums, "猫*7"));
  EXPECT_FALSE(derives(sums, "(1+2"));
  EXPECT_TRUE(derives("root ::= \"\\u00e9\\n\" .{2,}", "é\nab"));
}

TEST(Ebnf, PointsAtMistakes) {
  const auto message = [](std::string_view grammar) -> std::string {
    Language language;
    try {
      ebnf(language, grammar);
    } catch (const core::Error& e) {
      return e.message();
    }
    return "";
  };
  EXPECT_EQ(message("root ::= a"), "1:11: rule a is not defined");
  EXPECT_EQ(message("a ::= \"x\""), "1:10: there is no rule root");
  EXPECT_EQ(message("root ::=\n  \"x\" $"),
            "2:7: a literal, a class, a group or a name is expected");
  EXPECT_EQ(message("root ::= (\"x\""), "1:14: a ( without its )");
  EXPECT_EQ(message("root ::= \"x"), "1:12: a literal or a class has no end");
  EXPECT_EQ(message("root ::= \"x\" root ::= \"y\""), "1:22: rule root is defined twice");
}

// Try every integer and many decimals against their bounds.
bool writes(const NumberRange& range, const std::string& text) {
  Language language;
  const auto root = language.rule("root");
  language.define(root, json_number(language, range));
  try {
    return matches(language, root, text);
  } catch (const core::Error&) {
    return false;  // no number at all
  }
}

TEST(JsonNumber, KeepsItsBounds) {
  const auto bound = [](double v, bool excluded = false) {
    return NumberRange::Bound{decimal_of(core::json::value(v)), excluded};
  };
  for (const auto& [low, high] : {std::pair{8, 12}, {-3, 1000}, {-120, -7}, {0, 0}, {5, 3}})
    for (const bool excluded : {false, true})
      for (int x = -130; x <= 1010; x += x < 20 ? 1 : 90) {
        const NumberRange range{bound(low, excluded), bound(high), true, 1};
        const bool inside = (excluded ? x > low : x >= low) && x <= high;
        ASSERT_EQ(writes(range, std::to_string(x)), inside) << low << " " << high << " " << x;
      }
  const NumberRange fraction{bound(-0.25), bound(1.5, true), false, 1};
  for (const char* in : {"0", "1", "-0.25", "-0.1", "1.49999", "0.00", "1.0", "0.123456789"})
    EXPECT_TRUE(writes(fraction, in)) << in;
  for (const char* out : {"-0.26", "1.5", "1.50", "2", "-1", "-0", "01", ".5", "1.", "1e0", "--1"})
    EXPECT_FALSE(writes(fraction, out)) << out;
  const NumberRange sevens{bound(-50), {}, true, 7};
  for (int x = -60; x < 200; ++x)
    ASSERT_EQ(writes(sevens, std::to_string(x)), x >= -50 && x % 7 == 0) << x;
  EXPECT_TRUE(writes({.integer = true}, "-120"));
  EXPECT_FALSE(writes({.integer = true}, "1.5"));
  EXPECT_TRUE(writes({}, "-1.5e+07"));
}

// Ask documents of schemas.
bool admits(std::string_view schema, std::string_view document) {
  Language language;
  const auto root = json_schema(language, core::parse_json(schema, "test"));
  return matches(language, root, document);
}

TEST(JsonSchema, WritesMembersInOrder) {
  const char* person = R"({"type": "object", "properties": {"name": {"type": "string"},
    "age": {"type": "integer", "minimum": 0}, "tags": {"type": "array", "maxItems": 2,
    "items": {"enum": ["a", 7, null]}}}, "required": ["name", "tags"]})";
  EXPECT_TRUE(admits(person, R"({"name":"Å","age":3,"tags":[]})"));
  EXPECT_TRUE(admits(person, "{\n  \"name\": \"\",\n  \"tags\": [\"a\", null]\n}"));
  EXPECT_FALSE(admits(person, R"({"name":"A"})"));
  EXPECT_FALSE(admits(person, R"({"name":"A","age":-3,"tags":[]})"));
  EXPECT_FALSE(admits(person, R"({"name":"A","tags":["a",7,7]})"));
  EXPECT_FALSE(admits(person, R"({"tags":[],"name":"A"})"));        // another order
  EXPECT_FALSE(admits(person, R"({"name":"A","tags":[],"x":1})"));  // not listed
  EXPECT_FALSE(admits(person, "{  \"name\":\"\",\"tags\":[]}"));    // two spaces
  const char* open = R"({"properties": {"a": {"type": "integer"}}, "type": "object",
    "additionalProperties": {"type": "boolean"}})";
  EXPECT_TRUE(admits(open, R"({"a": 1, "aa": true, "": false})"));
  EXPECT_TRUE(admits(open, R"({"b": true})"));
  EXPECT_FALSE(admits(open, R"({"b": true, "a": true})"));  // a again, and no integer
}

TEST(JsonSchema, CombinesKeywords) {
  const char* tree = R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object",
    "properties": {"v": {"type": "number"}, "next": {"anyOf": [{"$ref": "#/$defs/node"},
    {"type": "null"}]}}, "required": ["v", "next"]}}})";
  EXPECT_TRUE(admits(tree, R"({"v":1,"next":{"v":-2.5,"next":null}})"));
  EXPECT_FALSE(admits(tree, R"({"v":1,"next":{"v":2}})"));
  EXPECT_TRUE(admits(R"({"minLength": 2})", "17"));
  EXPECT_FALSE(admits(R"({"minLength": 2})", R"("x")"));
  EXPECT_TRUE(admits(R"({"type": "string", "pattern": "^b+$", "maxLength": 3})", R"("bbb")"));
  EXPECT_FALSE(admits(R"({"type": "string", "pattern": "^b+$", "maxLength": 3})", R"("bbbb")"));
  EXPECT_TRUE(admits(R"({"maxLength": 2, "type": "string"})", R"("\ud83c\udf39é")"));
  EXPECT_FALSE(admits(R"({"type": "string"})", R"("\ud83c")"));
  EXPECT_TRUE(admits(R"({"enum": ["a", 1, "bb"], "type": "string", "minLength": 2})", R"("bb")"));
  EXPECT_FALSE(admits(R"({"enum": ["a", 1, "bb"], "type": "string", "minLength": 2})", R"("a")"));
  EXPECT_TRUE(
      admits(R"({"prefixItems": [{"const": 1}, {"const": 2}], "type": "array"})", "[1, 2]"));
  EXPECT_TRUE(admits(R"({"prefixItems": [{"const": 1}, {"const": 2}], "type": "array"})", "[1]"));
  EXPECT_FALSE(admits(R"({"prefixItems": [{"const": 1}], "type": "array", "minItems": 1})", "[]"));
  EXPECT_TRUE(
      admits(R"({"type": ["integer", "null"], "allOf": [{"minimum": 3}, {"maximum": 4}]})", "4"));
  EXPECT_FALSE(admits(R"({"type": "number", "multipleOf": 1, "minimum": 1})", "1.5"));
  EXPECT_TRUE(admits(R"({"type": "string", "format": "date"})", R"("2024-02-28")"));
  EXPECT_FALSE(admits(R"({"type": "string", "format": "date"})", R"("2024-02-30")"));
  EXPECT_TRUE(admits("true", R"([{"a": [1.5e3, "x", {}]}, null])"));
}

// Refuse with the place.
TEST(JsonSchema, RefusesWithThePlace) {
  const auto refusal = [](std::string_view schema) {
    try {
      Language language;
      Automaton(language, json_schema(language, core::parse_json(schema, "test")));
    } catch (const core::Error& e) {
      return std::string(core::name(e.code())) + " " + e.argument();
    }
    return std::string();
  };
  EXPECT_EQ(refusal(R"({"type": "array", "uniqueItems": true})"), "unsupported schema/uniqueItems");
  EXPECT_EQ(refusal(R"({"properties": {"a": {"not": {}}}})"),
            "unsupported schema/properties/a/not");
  EXPECT_EQ(refusal(R"({"type": "text"})"), "invalid_argument schema/type");
  EXPECT_EQ(refusal(R"({"$ref": "#/$defs/x"})"), "invalid_argument schema/$ref");
  EXPECT_EQ(refusal(R"({"$ref": "http://a/b"})"), "unsupported schema/$ref");
  EXPECT_EQ(refusal(R"({"type": "integer", "minimum": 5, "maximum": 3})"),
            "invalid_argument grammar");
  EXPECT_EQ(refusal(R"({"enum": []})"), "invalid_argument grammar");
  EXPECT_EQ(refusal(R"({"type": "object", "required": ["a"], "additionalProperties": false})"),
            "invalid_argument grammar");
  EXPECT_EQ(refusal(R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})"),
            "invalid_argument grammar");
  EXPECT_EQ(refusal(R"({"$ref": "#"})"), "invalid_argument grammar");
  EXPECT_EQ(refusal(R"({"allOf": [{"$ref": "#"}]})"), "resource_exhausted schema");
  EXPECT_EQ(refusal(R"({"oneOf": [{"type": "integer"}, {"minimum": 3}]})"),
            "unsupported schema/oneOf");
  EXPECT_EQ(refusal(R"({"type": "string", "minLength": 90000})"), "resource_exhausted grammar");
  EXPECT_EQ(refusal(R"s({"type": "string", "pattern": "a(?=b)"})s"), "unsupported pattern");
  EXPECT_EQ(refusal(R"({"properties": {"a": {}}, "type": "object", "allOf": [
    {"additionalProperties": false}]})"),
            "unsupported schema/allOf");
}

// Explode alone.
TriePtr json_trie();

TEST(Structured, WhatCannotBeMetEndsItsRequestAlone) {
  const TriePtr trie = json_trie();
  model::Config c;
  c.vocab_size = trie->vocab_size(), c.layers = 1, c.heads = c.kv_heads = 1, c.head_dim = 8;
  c.hidden = 8, c.ffn = 16, c.max_positions = 400;
  Engine engine(make_cpu_runner(model::random_weights(c, 2), {.max_sequences = 8}));
  std::map<std::string, std::string> ends;
  const auto ask = [&](const std::string& name,
                       std::function<std::shared_ptr<const Grammar>()> prepare) {
    Request r;
    r.id = name;
    r.prompt = {'a'};
    r.sampling.seed = 1;
    r.sampling.max_tokens = 60;
    r.prepare = std::move(prepare);
    r.on_event = [&](const Event& e) {
      if (!e.finish) return;
      ends[std::string(e.id)] =
          e.error != nullptr ? std::string(core::name(e.error->code())) : "answered";
    };
    engine.submit(std::move(r));
  };
  ask("plain", nullptr);
  ask("number", [&] { return schema_grammar(R"({"type": "integer", "maximum": 9})", trie); });
  ask("explodes",
      [&] { return schema_grammar(R"({"type": "string", "minLength": 90000})", trie); });
  ask("unsatisfiable",
      [&] { return schema_grammar(R"({"type": "integer", "minimum": 5, "maximum": 3})", trie); });
  engine.run();
  const std::map<std::string, std::string> expected{{"plain", "answered"},
                                                    {"number", "answered"},
                                                    {"explodes", "resource_exhausted"},
                                                    {"unsatisfiable", "invalid_argument"}};
  EXPECT_EQ(ends, expected);
}

// Walk at random, and parse what was written.
TriePtr json_trie() {
  text::Vocab vocab;
  for (int b = 0; b < 256; ++b) vocab.tokens.emplace_back(1, static_cast<char>(b));
  for (const char* token :
       {"{\"",      "\":",   "\": ", "\", \"", "\"}",  "}}",     "]}",   "},", " {",
        ": [",      " true", "null", "als",    "\n  ", "\n    ", "123",  ".5", "e+",
        "\\\"",     "\\u",   "00e",  "ab",     "name", "a\": ",  "[[",   "]]", "\xF0\x9F",
        "\x8C\xB9", "é\"",   "0,",   ", -",    "e",    "E",      "    ", "  "})
    vocab.tokens.emplace_back(token);
  return std::make_shared<TokenTrie>(text::Tokenizer(std::move(vocab)));
}

std::string walk(const ByteGrammar& grammar, core::Rng& rng) {
  const auto state = grammar.start();
  std::string text;
  std::vector<std::uint32_t> words(16);
  for (int step = 0; !state->must_end() && step < 3000; ++step) {
    if (state->can_end() && rng.below(4) == 0) break;
    state->mask(words);
    std::vector<std::int32_t> ids, closing;
    for (std::int32_t v = 0; v < grammar.trie().vocab_size(); ++v) {
      if ((words[static_cast<std::size_t>(v) / 32] >> v % 32 & 1) == 0) continue;
      ids.push_back(v);
      if (v < 128 && std::string_view("\"]}0").find(static_cast<char>(v)) != std::string::npos)
        closing.push_back(v);
    }
    if (step > 40 && !closing.empty()) ids = closing;
    EXPECT_FALSE(ids.empty()) << text;
    if (ids.empty()) break;
    const std::int32_t token = ids[rng.below(static_cast<std::uint32_t>(ids.size()))];
    EXPECT_TRUE(state->accept(token));
    text += grammar.trie().bytes(token);
  }
  EXPECT_TRUE(state->can_end()) << text;
  return text;
}

TEST(JsonSchema, EveryWalkParses) {
  const auto trie = json_trie();
  core::Rng rng(8);
  for (const char* schema :
       {"true", R"({"type": "object"})",
        R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}, "a": {}},
            "required": ["a"], "additionalProperties": {"type": "number"}})",
        R"({"type": "array", "items": {"anyOf": [{"const": "ab"}, {"type": "number"}]},
            "minItems": 2})"}) {
    const auto grammar = schema_grammar(schema, trie);
    for (int i = 0; i < 60; ++i) {
      const std::string text = walk(*grammar, rng);
      ASSERT_TRUE(core::is_utf8(text));
      ASSERT_NO_THROW(core::parse_json(text, "walk")) << text;
    }
  }
  const auto tag = schema_grammar(R"({"type": "object", "properties": {"name": {"const": 1}}})",
                                  trie, {.spaces = false})
                       ->start();
  EXPECT_TRUE(tag->accept('{'));
  EXPECT_TRUE(tag->accept('"'));
  EXPECT_EQ(tag->forced(), "name\":1}");
  for (int i = 0; i < 20; ++i) {
    const auto dates = regex_grammar("(19|20)\\d{2}-[01]\\d", trie);
    EXPECT_EQ(walk(*dates, rng).size(), 7u);
    const auto choice = choice_grammar({"null", "name", "nam"}, trie)->start();
    EXPECT_EQ(choice->forced(), "n");
  }
}

}  // namespace
}  // namespace rose::infer
