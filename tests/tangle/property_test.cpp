// What must hold for any bytes and any book.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "book.h"
#include "output.h"
#include "program.h"
#include "text.h"

namespace tangle {
namespace {

/// Text made of the pieces that the reader looks for, so that random books are not all prose.
rc::Gen<std::string> hostile_text() {
  const auto piece = rc::gen::elementOf(std::vector<std::string>{"```",
                                                                 "~~~",
                                                                 "````",
                                                                 "\n",
                                                                 "\n",
                                                                 "\n",
                                                                 "cpp ",
                                                                 "{#a}",
                                                                 "{#b file=\"x/y.h\"}",
                                                                 "{#c .test ns=\"n\"}",
                                                                 "{",
                                                                 "}",
                                                                 "\"",
                                                                 "#",
                                                                 ".append",
                                                                 ".replace",
                                                                 ".example",
                                                                 "<<a>>",
                                                                 "  <<b>>",
                                                                 "<<",
                                                                 ">>",
                                                                 "- ",
                                                                 "1. ",
                                                                 "> ",
                                                                 "    ",
                                                                 "\t",
                                                                 "<!--",
                                                                 "-->",
                                                                 "<div>",
                                                                 "---\n",
                                                                 "title: x\n",
                                                                 "tangles: [",
                                                                 "]",
                                                                 "- x\n",
                                                                 "\r\n",
                                                                 std::string(1, '\0'),
                                                                 "\xC3",
                                                                 "\xE2\x82\xAC",
                                                                 "word",
                                                                 "\\",
                                                                 "=",
                                                                 "`"});
  return rc::gen::map(rc::gen::container<std::vector<std::string>>(piece),
                      [](const std::vector<std::string>& pieces) {
                        return std::accumulate(pieces.begin(), pieces.end(), std::string());
                      });
}

Book book_of(std::vector<std::string> texts, Diagnostics& diagnostics) {
  std::vector<ChapterText> chapters;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string name = "ch" + std::to_string(i);
    chapters.push_back({name, name + ".md", std::move(texts[i])});
  }
  return with_texts(Book{}, std::move(chapters), diagnostics);
}

TEST(Properties, AnyBytesAreReadAndDescribed) {
  EXPECT_TRUE(rc::check([] {
    Diagnostics diagnostics;
    const Book book =
        book_of(*rc::gen::container<std::vector<std::string>>(hostile_text()), diagnostics);
    const Program program =
        link(book, static_cast<std::uint32_t>(book.chapters.size()), diagnostics);
    auto outputs = produce(program, diagnostics);
    RC_ASSERT(first_invalid_utf8(book_json(program, outputs)) == std::string::npos);
    for (const auto format : {MessageFormat::gcc, MessageFormat::json, MessageFormat::github}) {
      RC_ASSERT(first_invalid_utf8(diagnostics.rendered(format)) == std::string::npos);
    }
    add_line_directives(program, "out", outputs);
  }));
}

TEST(Properties, SourceMapsCoverTheirOutputsAndPointAtTheSameLines) {
  EXPECT_TRUE(rc::check([] {
    // A random program: a root that uses some of n chunks at random indentations, each once or more.
    std::string text = "```cpp {#root file=\"a.cpp\"}\nint begin;\n";
    const int chunks = *rc::gen::inRange(1, 6);
    std::string bodies;
    for (int i = 0; i < chunks; ++i) {
      const std::string id = "c" + std::to_string(i);
      for (int use = *rc::gen::inRange(1, 3); use > 0; --use) {
        text += std::string(static_cast<std::size_t>(*rc::gen::inRange(0, 5)), ' ') + "<<" + id +
                ">>\n";
      }
      for (int part = *rc::gen::inRange(1, 3); part > 0; --part) {
        bodies += "prose\n\n```cpp {#" + id +
                  (*rc::gen::arbitrary<bool>() ? " title=\"Do it\"" : "") + "}\n";
        for (int line = *rc::gen::inRange(0, 4); line > 0; --line) {
          bodies += *rc::gen::elementOf(std::vector<std::string>{"", "x();", "  y();"}) + "\n";
        }
        bodies += "```\n";
      }
    }
    Diagnostics diagnostics;
    const Book book = book_of({text + "```\n" + bodies}, diagnostics);
    const Program program = link(book, 1, diagnostics);
    const auto outputs = produce(program, diagnostics);
    RC_ASSERT(!diagnostics.failed());
    const Output& output = outputs.front();
    std::uint32_t next = 1;
    for (const tangle::Run& run : output.map) {
      RC_ASSERT(run.line == next);
      next += run.lines;
    }
    RC_ASSERT(next == 1 + static_cast<std::uint32_t>(
                              std::count(output.text.begin(), output.text.end(), '\n')));
    std::size_t begin = 0;
    for (std::uint32_t line = 1; line < next; ++line) {
      const std::size_t end = output.text.find('\n', begin);
      const Origin origin = origin_of(program, output, line, 1);
      if (origin.document && origin.run->kind == tangle::Run::Kind::body) {
        const Source& source = *origin.document->source;
        std::uint32_t at = 0;
        for (std::uint32_t i = 1; i < origin.line; ++i) at = line_around(source, at).end + 1;
        RC_ASSERT(trimmed(line_around(source, at).text()) ==
                  trimmed(std::string_view(output.text).substr(begin, end - begin)));
      }
      begin = end + 1;
    }
  }));
}

TEST(Properties, NoPathLeavesTheFolder) {
  EXPECT_TRUE(rc::check([] {
    const auto piece = rc::gen::elementOf(std::vector<std::string>{
        "/", "..", ".", "a", "B", "-", " ", "\\", "~", "\n", "\xC3\xA9", ":"});
    std::string path;
    for (const std::string& each : *rc::gen::container<std::vector<std::string>>(piece))
      path += each;
    if (!path_objection(path).empty()) return;
    RC_ASSERT(path.front() != '/');
    RC_ASSERT(("/" + path + "/").find("/../") == std::string::npos);
    RC_ASSERT(path.find('\\') == std::string::npos && path.find('\n') == std::string::npos);
  }));
}

}  // namespace
}  // namespace tangle
