// Tests of the chapter "Conversations: chat templates".

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

#include <boost/json.hpp>

#include "rose/text/template.h"
#include "rose/text/template_ast.h"
#include "rose/text/template_interpreter.h"
#include "rose/text/template_lexer.h"
#include "rose/text/template_parser.h"

namespace rose::text {
namespace {

// Render a template for the tests.
std::string render(const std::string& source, const std::string& context = "{}") {
  return ChatTemplate(source).render(boost::json::parse(context).as_object());
}

std::string message_of(const std::string& source, const std::string& context = "{}") {
  try {
    return "no error: " + render(source, context);
  } catch (const core::Error& error) {
    return error.what();
  }
}

// White space is swallowed as Jinja swallows it.
TEST(ChatTemplate, SwallowsWhiteSpaceAsJinjaDoes) {
  EXPECT_EQ(render("a \n  {% if true %}\n b {%- endif %}\nc"), "a \n bc");
  EXPECT_EQ(render("{{ 1 }}\n{{ 2 }}\n"), "1\n2");  // prints keep their newline
  EXPECT_EQ(render("a  {%- set x = 1 -%}  \n b"), "ab");
  EXPECT_EQ(render("x\n  {%+ if true %}y{% endif %}"), "x\n  y");
  EXPECT_EQ(render("a {# gone #}\nb"), "a b");
  EXPECT_EQ(render("{% raw %}{{ x }}{% endraw %}"), "{{ x }}");
  EXPECT_EQ(render("{% if true %}\nx\n{% endif %}\ny"), "x\ny");  // the tags' lines leave nothing
}

// Literals are read as Python reads them.
TEST(ChatTemplate, ReadsLiteralsAsPythonDoes) {
  EXPECT_EQ(render("{{ 1_000 + 0x1F + 0b101 }} {{ 1.5e3 }} {{ 2 }}"), "1036 1500.0 2");
  EXPECT_EQ(render(R"({{ "\x41\u00e9\101\d" }})"), "AéA\\d");
  EXPECT_EQ(render(R"({{ "\é" }})"), R"(\xe9)");
  EXPECT_EQ(render("{{ [['a', 'b']].0.1 }}"), "b");  // 0.1 is no float after a dot
  EXPECT_THAT(message_of("{{ 9223372036854775808 }}"), testing::HasSubstr("does not fit 64 bits"));
}

// Operators bind as the table says.
TEST(ChatTemplate, OperatorsBindAsTheTableSays) {
  EXPECT_EQ(render("{{ 'a' + 1 ~ 2 }}"), "a12");
  EXPECT_EQ(render("{{ 2 * 3 ~ 4 }}"), "64");
  EXPECT_EQ(render("{{ -2 ** 2 }}"), "4");
  EXPECT_EQ(render("{{ 2 ** 3 ** 2 }}"), "64");
  EXPECT_EQ(render("{{ -3 | abs }}"), "3");
  EXPECT_EQ(render("{{ 'x' + ' y ' | trim ~ 1 }}"), "xy1");
  EXPECT_EQ(render("{{ 3 > 2 > 1 }} {{ (3 > 2) > 1 }}"), "True False");
  EXPECT_EQ(render("{{ not 1 == 2 }} {{ 7 is divisibleby 3 or true }}"), "True True");
}

// A loop has a scope, an if has none.
TEST(ChatTemplate, LoopsHaveAScopeAndIfsHaveNone) {
  EXPECT_EQ(render("{% set x = 1 %}{% for i in [1, 2] %}{% set x = i %}{% endfor %}{{ x }}"), "1");
  EXPECT_EQ(render("{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}"), "2");
  EXPECT_EQ(
      render("{% set ns = namespace(x=1) %}{% for i in [1, 2] %}{% set ns.x = i %}{% endfor %}"
             "{{ ns.x }}"),
      "2");
  EXPECT_EQ(
      render("{% for i in [1, 2, 3] %}{{ loop.index }}{{ ',' if not loop.last }}{% endfor %}"),
      "1,2,3");
}

// Macros see where they were defined, and defaults see earlier parameters.
TEST(ChatTemplate, MacrosSeeWhereTheyWereDefined) {
  EXPECT_EQ(render("{% macro m(a, b=a+1) %}{{ a }}{{ b }} {% endmacro %}{{ m(1) }}{{ m(1, 5) }}"),
            "12 15 ");
  EXPECT_EQ(render("{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}"
                   "{% for x in [7] %}{{ m() }}{% endfor %}"),
            "1");  // not the loop's x
  EXPECT_EQ(render("{% macro m() %}{{ varargs | length }}{{ kwargs.k }}{% endmacro %}"
                   "{{ m(1, 2, k=3) }}"),
            "23");
  EXPECT_EQ(render("{% macro box() %}[{{ caller() }}]{% endmacro %}"
                   "{% call box() %}text{% endcall %}"),
            "[text]");
  EXPECT_THAT(message_of("{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}"),
              testing::HasSubstr("takes at most 1 arguments"));
}

// Loops answer, filter, recurse.
TEST(ChatTemplate, LoopsAnswerFilterAndRecurse) {
  EXPECT_EQ(render("{% for x in [1, 2, 3] if x is odd %}{{ loop.index }}:{{ x }}"
                   "{{ '.' if loop.last else ', ' }}{% else %}none{% endfor %}"),
            "1:1, 2:3.");
  EXPECT_EQ(render("{% for x in [] %}{% else %}none{% endfor %}"), "none");
  EXPECT_EQ(render("{% for n in tree recursive %}{{ n.v }}"
                   "{% if n.c %}({{ loop(n.c) }}){% endif %}{% endfor %}",
                   R"({"tree": [{"v": 1, "c": [{"v": 2}, {"v": 3}]}]})"),
            "1(23)");
}

// An error says where, what and what would help.
TEST(ChatTemplate, ErrorsSayWhereWhatAndWhatWouldHelp) {
  EXPECT_EQ(message_of("a\n{{ m.x.y }}", R"({"m": {}})"),
            "chat template:2:7 at `.y }}`: 'dict object' has no attribute 'x'");
  EXPECT_THAT(message_of("{{ 'a' + none }}"), testing::HasSubstr("~ joins texts"));
  EXPECT_THAT(message_of("{% for x in y %}"), testing::HasSubstr("endfor"));
  EXPECT_THAT(message_of("{{ x | nosuch }}"), testing::HasSubstr("no filter 'nosuch'"));
  EXPECT_THAT(message_of("{{ raise_exception('roles must alternate') }}"),
              testing::HasSubstr("roles must alternate (the template itself refuses"));
  EXPECT_THAT(
      message_of(
          "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"),
      testing::HasSubstr("ran for more than 5000000 steps"));
  EXPECT_THAT(message_of("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
              testing::HasSubstr("calls itself too deeply"));
  EXPECT_THAT(message_of("{{ 'a' * 100000000 }}"),
              testing::HasSubstr("makes a text of more than 33554432 bytes"));
  EXPECT_THAT(message_of("{{ [].append(1) }}"), testing::HasSubstr("may not change a list"));
  EXPECT_THAT(message_of("{{ ''.__class__.__mro__ }}"), testing::HasSubstr("has no attribute"));
}

// A conversation becomes the transcript.
TEST(ChatTemplate, WritesTheTranscript) {
  const ChatTemplate chatml(
      "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content "
      "+ '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}"
      "{{ '<|im_start|>assistant\n' }}{% endif %}");
  const auto messages = boost::json::parse(R"([
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is a rose?", "name": null}])")
                            .as_array();
  EXPECT_EQ(chatml.render(chat_context(messages, {})),
            "<|im_start|>system\nBe brief.<|im_end|>\n"
            "<|im_start|>user\nWhat is a rose?<|im_end|>\n"
            "<|im_start|>assistant\n");
  ChatOptions closed;
  closed.add_generation_prompt = false;
  EXPECT_FALSE(chatml.render(chat_context(messages, closed)).ends_with("assistant\n"));
}

// One template renders from several threads.
TEST(ChatTemplate, RendersFromSeveralThreads) {
  const ChatTemplate shared(
      "{% macro m(x) %}<{{ x }}>{% endmacro %}{% for i in range(n) %}{{ m(i) }}{% endfor %}");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&shared] {
      for (int i = 0; i < 50; ++i) {
        ASSERT_EQ(shared.render({{"n", 3}}), "<0><1><2>");
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace rose::text
