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
