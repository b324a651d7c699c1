// Edits of outputs come back exactly, or not at all: 10,000 random ones, and the cases that people meet.
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "diff.h"
#include "output.h"
#include "program.h"
#include "stitch.h"

namespace tangle {
namespace {

struct Made {
  Diagnostics diagnostics;
  Book book;
  Program program;
  std::vector<Output> outputs;

  explicit Made(std::vector<ChapterText> texts) {
    book = with_texts(Book{}, std::move(texts), diagnostics);
    program = link(book, static_cast<std::uint32_t>(book.chapters.size()), diagnostics);
    outputs = produce(program, diagnostics);
  }
  std::uint32_t index(std::string_view path) const {
    for (std::uint32_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].path == path) return i;
    }
    ADD_FAILURE() << "no output " << path;
    return 0;
  }
};

std::string fence(const std::string& attributes, const std::string& body) {
  return "Why.\n\n```cpp {" + attributes + "}\n" + body + "```\n\n";
}

std::vector<ChapterText> small_book() {
  return {
      {"one", "book/one.md",
       "# One\n\n" +
           fence("#root title=\"Open the file\" file=\"rose/a.cpp\"",
                 "#include <x>\n\nvoid f() {\n  <<inner>>\n}\n\n<<shared>>\n") +
           fence("#inner title=\"Do the inner thing\"", "int a = 1;\nif (a) {\n  <<deep>>\n}\n") +
           fence("#deep", "g(a);\nh(a);\n") +
           fence("#shared title=\"Say it twice\"", "int twice();\nint thrice();\n") +
           "- in a list\n\n  ```cpp {#other file=\"rose/b.cpp\"}\n  int b;\n\n  <<shared>>\n  "
           "```\n"},
      {"two", "book/two.md",
       "# Two\n\n" + fence("#deep .append", "i(a);\n") +
           fence("#test-a .test title=\"Test it\" ns=\"rose\"", "TEST(A, B) {}\n") +
           fence("#test-b .test ns=\"rose\"", "TEST(A, C) {}\n")}};
}

/// Stitches texts (by output path) into the book; the chapters' new texts, none when refused, and the messages.
std::vector<ChapterText> stitched(const Made& made,
                                  const std::vector<std::pair<std::string, std::string>>& wanted,
                                  std::string& messages) {
  std::deque<Source> sources;
  Diagnostics diagnostics;
  std::vector<Edited> edited;
  for (const auto& [path, text] : wanted)
    edited.push_back({made.index(path), &sources.emplace_back("generated/" + path, text)});
  std::vector<ChapterText> texts = stitch(made.program, made.outputs, edited, diagnostics);
  EXPECT_EQ(texts.empty(), diagnostics.failed());
  messages = diagnostics.rendered(MessageFormat::gcc);
  return texts;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(Diff, FindsTheShortestScript) {
  const auto hunks = diff(lines_of("a\nb\nc\nd\n"), lines_of("a\nx\nc\nd\ne\n"));
  ASSERT_EQ(hunks.size(), 2u);
  EXPECT_EQ(hunks[0], (Hunk{1, 2, 1, 2}));
  EXPECT_EQ(hunks[1], (Hunk{4, 4, 4, 5}));
  EXPECT_TRUE(diff(lines_of("a\n"), lines_of("a\n")).empty());
  EXPECT_EQ(diff({}, lines_of("a\nb\n")).front(), (Hunk{0, 0, 0, 2}));
}

TEST(Diff, ReplayingTheHunksGivesTheOtherText) {
  std::mt19937 bits(5);
  for (int round = 0; round < 2000; ++round) {
    std::string a, b;
    for (std::string* text : {&a, &b}) {
      for (auto i = bits() % 12; i > 0; --i)
        *text += std::string(1, static_cast<char>('a' + bits() % 4)) + "\n";
    }
    const Lines before = lines_of(a), after = lines_of(b);
    std::string again;
    std::uint32_t at = 0;
    for (const Hunk& hunk : diff(before, after)) {
      for (; at < hunk.old_begin; ++at) again += before[at];
      for (std::uint32_t i = hunk.new_begin; i < hunk.new_end; ++i) again += after[i];
      at = hunk.old_end;
    }
    for (; at < before.size(); ++at) again += before[at];
    ASSERT_EQ(again, b) << a << "->\n" << b;
  }
}

TEST(Merge, TakesBothSidesAndNamesTheConflict) {
  const Lines base = lines_of("a\nb\nc\nd\ne\n");
  std::string merged;
  std::uint32_t conflict = 0;
  EXPECT_TRUE(
      merge(base, lines_of("A\nb\nc\nd\ne\n"), lines_of("a\nb\nc\nd\nE\n"), merged, conflict));
  EXPECT_EQ(merged, "A\nb\nc\nd\nE\n");
  EXPECT_TRUE(
      merge(base, lines_of("a\nX\nc\nd\ne\n"), lines_of("a\nX\nc\nd\ne\nf\n"), merged, conflict));
  EXPECT_EQ(merged, "a\nX\nc\nd\ne\nf\n");
  EXPECT_FALSE(
      merge(base, lines_of("a\nX\nc\nd\ne\n"), lines_of("a\nY\nc\nd\ne\n"), merged, conflict));
  EXPECT_EQ(conflict, 1u);
}

TEST(Stitch, ALineInANestedChunkLosesTheIndentationOfItsPlace) {
  const Made made(small_book());
  ASSERT_FALSE(made.diagnostics.failed()) << made.diagnostics.rendered(MessageFormat::gcc);
  std::string messages;
  const std::string& text = made.outputs[made.index("rose/a.cpp")].text;
  const auto chapters = stitched(
      made, {{"rose/a.cpp", replaced(text, "    h(a);\n", "    h(a, 2);\n    k();\n")}}, messages);
  ASSERT_EQ(chapters.size(), 2u) << messages;
  EXPECT_NE(chapters[0].bytes.find("\ng(a);\nh(a, 2);\nk();\n```"), std::string::npos)
      << chapters[0].bytes;
}

TEST(Stitch, ATitleCommentBecomesTheTitle) {
  const Made made(small_book());
  std::string messages;
  const std::string& text = made.outputs[made.index("rose/a.cpp")].text;
  const auto chapters = stitched(
      made, {{"rose/a.cpp", replaced(text, "// Do the inner thing.", "// Do the other thing.")}},
      messages);
  ASSERT_EQ(chapters.size(), 2u) << messages;
  EXPECT_NE(chapters[0].bytes.find("title=\"Do the other thing\""), std::string::npos);
}

TEST(Stitch, AChunkUsedTwiceIsEditedEverywhereOrRefused) {
  const Made made(small_book());
  const std::string& a = made.outputs[made.index("rose/a.cpp")].text;
  const std::string& b = made.outputs[made.index("rose/b.cpp")].text;
  std::string once, twice, differently;
  EXPECT_TRUE(stitched(made, {{"rose/a.cpp", replaced(a, "int twice();", "int twice(int);")}}, once)
                  .empty());
  EXPECT_NE(once.find("rose/b.cpp"), std::string::npos) << once;
  EXPECT_EQ(stitched(made,
                     {{"rose/a.cpp", replaced(a, "int twice();", "int twice(int);")},
                      {"rose/b.cpp", replaced(b, "int twice();", "int twice(int);")}},
                     twice)
                .size(),
            2u);
  EXPECT_TRUE(stitched(made,
                       {{"rose/a.cpp", replaced(a, "int twice();", "int twice(int);")},
                        {"rose/b.cpp", replaced(b, "int twice();", "int twice(long);")}},
                       differently)
                  .empty());
}

TEST(Stitch, RefusesWhatNoChunkCanSay) {
  const Made made(small_book());
  const std::string& a = made.outputs[made.index("rose/a.cpp")].text;
  const std::string& test = made.outputs[made.index("tests/two_test.cpp")].text;
  const std::vector<std::pair<std::string, std::string>> impossible = {
      {"rose/a.cpp", replaced(a, "    h(a);\n", "#if 1\n")},            // too little indentation
      {"rose/a.cpp", replaced(a, "    h(a);\n", "    <<nowhere>>\n")},  // would be a reference
      {"rose/a.cpp", replaced(a, "#include <x>\n", "```\n")},           // would end the fence
      {"rose/a.cpp",
       replaced(a, "#include <x>\n", "#include <x>\r\n")},  // the chapter has no such line ends
      {"rose/a.cpp", replaced(a, "// Do the inner thing.\n", "")},  // a title cannot vanish
      {"rose/a.cpp", a.substr(0, a.size() - 1)},                    // no line feed at the end
      {"tests/two_test.cpp", replaced(test, "#include <gtest/gtest.h>", "#include <x>")},
      {"tests/two_test.cpp", replaced(test, "namespace rose", "namespace thorn")}};
  for (const auto& edit : impossible) {
    std::string messages;
    EXPECT_TRUE(stitched(made, {edit}, messages).empty()) << edit.second;
    EXPECT_NE(messages.find("[stitch-refused]"), std::string::npos) << messages;
  }
}

/// One random change of a text, of the kinds that people and formatters make.
std::string random_edit(std::string text, std::mt19937& bits) {
  const Lines lines = lines_of(text);
  const auto pick = [&] { return lines.empty() ? 0 : bits() % lines.size(); };
  std::vector<std::string> out(lines.begin(), lines.end());
  const std::size_t at = pick();
  const std::string indent(
      at < out.size() ? std::min(out[at].find_first_not_of(' '), out[at].size() - 1) : 0, ' ');
  switch (bits() % 8) {
    case 0: out[at] = indent + "changed(" + std::to_string(bits() % 100) + ");\n"; break;
    case 1:
      out.insert(out.begin() + static_cast<std::ptrdiff_t>(at), indent + "inserted();\n");
      break;
    case 2:
      out.insert(out.begin() + static_cast<std::ptrdiff_t>(at),
                 {"\n", indent + "two();\n", indent + "more();\n"});
      break;
    case 3: out.erase(out.begin() + static_cast<std::ptrdiff_t>(at)); break;
    case 4: std::swap(out[at], out[pick()]); break;
    case 5:
      out.erase(
          out.begin() + static_cast<std::ptrdiff_t>(at),
          out.begin() + static_cast<std::ptrdiff_t>(std::min(out.size(), at + 1 + bits() % 4)));
      break;
    case 6: out[at] = "x" + out[at]; break;
    default:
      out.insert(out.begin() + static_cast<std::ptrdiff_t>(at),
                 std::string(bits() % 5, ' ') + "anywhere\n");
      break;
  }
  text.clear();
  for (const std::string& line : out) text += line;
  return text;
}

TEST(Stitch, RandomEditsComeBackExactlyOrNotAtAll) {
  const char* rounds_wanted = std::getenv("ROSE_STITCH_ROUNDS");
  const int rounds = rounds_wanted ? std::atoi(rounds_wanted) : 10'000;
  std::mt19937 bits(11);
  std::vector<ChapterText> current = small_book();
  int accepted = 0, edited_rounds = 0;
  for (int round = 0; round < rounds; ++round) {
    if (round % 20 == 0) current = small_book();  // edits pile up, then start again
    const Made made(current);
    ASSERT_FALSE(made.diagnostics.failed()) << made.diagnostics.rendered(MessageFormat::gcc);
    std::vector<std::string> wanted;
    std::vector<std::pair<std::string, std::string>> edits;
    for (const Output& output : made.outputs) {
      wanted.push_back(output.text);
      if (output.kind == OutputKind::list || bits() % 2 == 0) continue;
      for (auto n = 1 + bits() % 2; n > 0 && !wanted.back().empty(); --n)
        wanted.back() = random_edit(wanted.back(), bits);
      if (wanted.back() != output.text) edits.emplace_back(output.path, wanted.back());
    }
    if (edits.empty()) continue;
    ++edited_rounds;
    std::string messages;
    const std::vector<ChapterText> texts = stitched(made, edits, messages);
    if (texts.empty()) continue;
    ++accepted;
    const Made again(texts);
    ASSERT_FALSE(again.diagnostics.failed());
    ASSERT_EQ(again.outputs.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i)
      ASSERT_EQ(again.outputs[i].text, wanted[i]) << "round " << round;
    current = texts;
  }
  RecordProperty("accepted", accepted);
  EXPECT_GT(accepted, edited_rounds / 10)
      << "of " << edited_rounds;  // most of these edits are hostile, not all
}

TEST(Stitch, EveryLineOfAChunkUsedOnceCanBeChangedDoubledAndRemoved) {
  const Made made(small_book());
  int tried = 0;
  for (const Output& output : made.outputs) {
    const Lines lines = lines_of(output.text);
    for (std::uint32_t i = 0; i < lines.size(); ++i) {
      const tangle::Run* run = origin_of(made.program, output, i + 1, 0).run;
      if (!run || run->kind != tangle::Run::Kind::body || run->chunk == tangle::Run::no_part ||
          lines[i] == "\n")
        continue;
      if (made.program.chunks[run->chunk].used_by.size() > 1) continue;
      const std::string line(lines[i]);
      const std::string indent = line.substr(0, line.find_first_not_of(' '));
      for (const std::string& with : {indent + "changed();\n", line + line,
                                      line + "\n" + indent + "more();\n", std::string()}) {
        std::string text;
        for (std::uint32_t j = 0; j < lines.size(); ++j)
          text += j == i ? with : std::string(lines[j]);
        std::string messages;
        EXPECT_FALSE(stitched(made, {{output.path, text}}, messages).empty())
            << output.path << ":" << i + 1 << "\n"
            << messages;
        ++tried;
      }
    }
  }
  EXPECT_GT(tried, 40);
}

}  // namespace
}  // namespace tangle
