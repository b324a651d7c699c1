// Attributes, front matter and the roles, read from bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "document.h"
#include "text.h"

namespace tangle {
namespace {

struct Reading {
  explicit Reading(std::string text)
      : source("x.md", std::move(text)), document(parse_document(source, "x", diagnostics)) {}

  std::vector<std::string> codes() const {
    std::vector<std::string> out;
    for (const Message& message : diagnostics.messages()) out.emplace_back(message.code);
    return out;
  }

  Source source;
  Diagnostics diagnostics;
  Document document;
};

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Attributes, PandocForms) {
  const Reading reading("```cpp {#an-id .sketch title=\"A title's = & <signs>\" of=bare}\n```\n");
  EXPECT_THAT(reading.codes(), IsEmpty());
  const Fence& fence = reading.document.fences.at(0);
  EXPECT_EQ(fence.id(), "an-id");
  EXPECT_EQ(fence.language, "cpp");
  EXPECT_EQ(fence.role, Role::sketch);
  EXPECT_EQ(fence.title(), "A title's = & <signs>");
  EXPECT_EQ(fence.attributes.value("of"), "bare");
}

TEST(Attributes, BackslashesAreRefused) {
  EXPECT_THAT(Reading("```cpp {#a .sketch title=\"x \\\\ y\"}\n```\n").codes(),
              ElementsAre("backslash-in-value"));
  EXPECT_THAT(Reading("```cpp {#a .sketch title=\"x \\\"y\"}\n```\n").codes(),
              testing::Contains("backslash-in-value"));
}

TEST(Attributes, BracesInQuotesDoNotClose) {
  const Reading reading("```cpp {#a title=\"Map {k: v}\" .sketch}\n```\n");
  EXPECT_THAT(reading.codes(), IsEmpty());
  EXPECT_EQ(reading.document.fences.at(0).title(), "Map {k: v}");
}

TEST(FrontMatter, TheSubsetOfYaml) {
  const Reading reading(
      "---\ntitle: \"One: two\"  # comment\nquestions:\n  - Why is x # y?\n  - A question that\n   "
      " goes on\n  - 'It''s'\n"
      "tangles: [a.h, \"b.h\",\n  c.h]\nempty:\nnested:\n  key: value\n---\n");
  const YamlNode& front = reading.document.front;
  EXPECT_EQ(front.text("title"), "One: two");
  const auto questions = front.list("questions");
  ASSERT_EQ(questions.size(), 3u);
  EXPECT_EQ(questions[0]->scalar, "Why is x");
  EXPECT_EQ(questions[1]->scalar, "A question that goes on");
  EXPECT_EQ(front.list("tangles").size(), 3u);
  EXPECT_EQ(front.list("tangles")[2]->scalar, "c.h");
  EXPECT_EQ(front.find("empty")->kind, YamlNode::Kind::null);
  EXPECT_EQ(front.find("nested")->text("key"), "value");
}

TEST(FrontMatter, QuotesInQuotes) {
  const Reading reading("---\na: 'It''s'\nb: \"x\\\"y\"\n---\n");
  EXPECT_THAT(reading.codes(), IsEmpty());
  EXPECT_EQ(reading.document.front.text("a"), "It's");
  EXPECT_EQ(reading.document.front.text("b"), "x\"y");
}

TEST(References, OnlyWholeLines) {
  const Reading reading(
      "```cpp {#a file=\"a.cpp\"}\n<<one>>\n  <<two-2>>  \nk<<<g, b>>>();\n<<x>> // no\nstd::cout "
      "<< x >> y;\n<<x, y>>\n<< x >>\n<<<x>>>\n```\n");
  EXPECT_THAT(reading.codes(), IsEmpty());
  const auto& references = reading.document.fences.at(0).references;
  ASSERT_EQ(references.size(), 2u);
  EXPECT_EQ(references[0].id, "one");
  EXPECT_EQ(references[1].id, "two-2");
  EXPECT_EQ(references[1].indent, 2u);
  EXPECT_EQ(references[1].number, 1u);
}

TEST(Bytes, AChapterHasAnEnd) {
  EXPECT_THAT(Reading(std::string((64u << 20) + 1, 'x')).codes(), ElementsAre("too-large"));
}

TEST(Text, Utf8) {
  EXPECT_EQ(first_invalid_utf8("plain and \xE2\x82\xAC and \xF0\x9F\x8C\xB9"),
            std::string_view::npos);
  EXPECT_EQ(first_invalid_utf8("12345678\xC0\x80"), 8u);   // overlong
  EXPECT_EQ(first_invalid_utf8("\xED\xA0\x80"), 0u);       // a surrogate
  EXPECT_EQ(first_invalid_utf8("a\xF4\x90\x80\x80"), 1u);  // beyond U+10FFFF
  EXPECT_EQ(first_invalid_utf8("ab\xE2\x82"), 2u);         // cut short
}

TEST(Text, NearestWords) {
  EXPECT_THAT(nearest("titel", {"title", "file", "of"}), ElementsAre("title"));
  EXPECT_THAT(nearest("kv-pol", {"kv-pool", "kv-page", "other"}), ElementsAre("kv-pool"));
  EXPECT_THAT(nearest("x", {"a", "b"}), IsEmpty());
}

}  // namespace
}  // namespace tangle
