// The fence reader against CommonMark's rules, case by case.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fence.h"

namespace tangle {
namespace {

/// The bodies of all fences, each with `how` it ended when that was not by its own closing run.
std::vector<std::string> bodies(std::string_view text) {
  std::vector<std::string> out;
  for (const FenceLines& fence : scan_fences(text)) {
    std::string body(text.substr(fence.body_begin, fence.body_end - fence.body_begin));
    if (fence.how == FenceEnd::file) body += "(file)";
    if (fence.how == FenceEnd::container) body += "(container)";
    out.push_back(body);
  }
  return out;
}

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Fences, BasicShapes) {
  EXPECT_THAT(bodies("```\na\n```\n"), ElementsAre("a\n"));
  EXPECT_THAT(bodies("~~~\na\n~~~\n"), ElementsAre("a\n"));
  EXPECT_THAT(bodies("```\n```"), ElementsAre(""));
  EXPECT_THAT(bodies("``\na\n``\n"), IsEmpty());
  EXPECT_THAT(bodies("   ```\n   a\n  ```\n"), ElementsAre("   a\n"));
  EXPECT_THAT(bodies("    ```\n    a\n"), IsEmpty());
  EXPECT_THAT(bodies("text\n```\na\n```\nmore\n```\nb\n```\n"), ElementsAre("a\n", "b\n"));
}

TEST(Fences, ClosingRuns) {
  EXPECT_THAT(bodies("````\n```\n````\n"), ElementsAre("```\n"));
  EXPECT_THAT(bodies("```\na\n`````\n"), ElementsAre("a\n"));
  EXPECT_THAT(bodies("```\n~~~\n``` x\n```  \n"), ElementsAre("~~~\n``` x\n"));
  EXPECT_THAT(bodies("```\n    ```\n```\n"), ElementsAre("    ```\n"));
  EXPECT_THAT(bodies("```\na"), ElementsAre("a(file)"));
}

TEST(Fences, InfoStrings) {
  EXPECT_THAT(bodies("``` a`b\nc\n"), IsEmpty());
  EXPECT_THAT(bodies("~~~ a`b\nc\n~~~\n"), ElementsAre("c\n"));
  const std::string text = "```  cpp {#x}  \n```\n";
  const auto fences = scan_fences(text);
  ASSERT_EQ(fences.size(), 1u);
  EXPECT_EQ(text.substr(fences[0].info_begin, fences[0].info_end - fences[0].info_begin),
            "cpp {#x}");
}

TEST(Fences, ListsAndQuotes) {
  EXPECT_THAT(bodies("- a\n\n  ```\n  b\n  ```\n"), ElementsAre("  b\n"));
  EXPECT_THAT(bodies("1.  a\n\n    ```\n    b\n    ```\n"), ElementsAre("    b\n"));
  EXPECT_THAT(bodies("1.  a\nlazy\n\n    ```\n    b\n    ```\n"), ElementsAre("    b\n"));
  EXPECT_THAT(bodies("- a\n\nout\n\n    ```\n    b\n"), IsEmpty());
  EXPECT_THAT(bodies("- ```\n  a\n  ```\n"), ElementsAre("  a\n"));
  EXPECT_THAT(bodies("- ```\n  a\nout\n"), ElementsAre("  a\n(container)"));
  EXPECT_THAT(bodies("> ```\n> a\n> ```\n"), ElementsAre("> a\n"));
  EXPECT_THAT(bodies("> ```\n> a\n\nout\n"), ElementsAre("> a\n(container)"));
}

TEST(Fences, RawHtmlHoldsNone) {
  EXPECT_THAT(bodies("<!--\n```\na\n```\n-->\n```\nb\n```\n"), ElementsAre("b\n"));
  EXPECT_THAT(bodies("<!-- eq:x -->\n```\nb\n```\n"), ElementsAre("b\n"));
  EXPECT_THAT(bodies("<div>\n```\na\n```\n\n```\nb\n```\n"), ElementsAre("b\n"));
  EXPECT_THAT(bodies("<pre>\n\n```\na\n</pre>\n```\nb\n```\n"), ElementsAre("b\n"));
}

TEST(Fences, LineNumbers) {
  const auto fences = scan_fences("a\n```\nb\nc\n```\nd\n~~~\n~~~\n", 0, 10);
  ASSERT_EQ(fences.size(), 2u);
  EXPECT_EQ(fences[0].line, 11u);
  EXPECT_EQ(fences[0].body_lines, 2u);
  EXPECT_EQ(fences[1].line, 16u);
}

}  // namespace
}  // namespace tangle
