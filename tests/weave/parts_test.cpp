#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "ast.h"
#include "citations.h"
#include "comments.h"
#include "highlight.h"
#include "html.h"
#include "json.h"
#include "names.h"
#include "xml.h"

namespace weave {
namespace {

using testing::ElementsAre;

json::array inlines(std::string_view words) {
  json::array made;
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    if (!made.empty()) made.push_back(ast::space());
    made.push_back(ast::str(words.substr(0, end)));
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return made;
}

TEST(Citations, BecomeNodesWithPrefixSuffixAndMode) {
  json::array text = inlines("so ([see @dao2022, section 4.1; -@shah2024]) it is");
  std::vector<std::string> keys;
  make_citations(text, keys);
  EXPECT_THAT(keys, ElementsAre("dao2022", "shah2024"));
  const auto cite = std::find_if(text.begin(), text.end(),
                                 [](const json::value& each) { return ast::tag(each) == "Cite"; });
  ASSERT_NE(cite, text.end());
  const json::array& items = ast::content(*cite).as_array()[0].as_array();
  EXPECT_EQ(ast::plain(items[0].as_object().at("citationPrefix")), "see ");
  EXPECT_EQ(ast::plain(items[0].as_object().at("citationSuffix")), ", section 4.1");
  EXPECT_EQ(ast::tag(items[1].as_object().at("citationMode")), "SuppressAuthor");
  EXPECT_EQ(ast::plain(text), "so (see @dao2022, section 4.1; -@shah2024) it is");
}

TEST(Citations, TwoInOneWordAndNoneInOtherBrackets) {
  json::array text = inlines("both [@a][@b], not [this] or [me@example.org] or an open [@c");
  std::vector<std::string> keys;
  make_citations(text, keys);
  EXPECT_THAT(keys, ElementsAre("a", "b"));
}

TEST(Citations, NeverLoseWords) {
  rc::check([](const std::vector<std::string>& words) {
    json::array text;
    std::string all;
    for (const std::string& word : words) {
      text.push_back(ast::str(word));
      all += word;
    }
    std::vector<std::string> keys;
    make_citations(text, keys);
    std::string left;
    for (const json::value& each : text)
      left += ast::tag(each) == "Str" ? std::string(view(ast::content(each).as_string()))
                                      : "[" + ast::plain(json::array{each}) + "]";
    RC_ASSERT(left == all);
  });
}

std::string kinds(std::string_view code, std::string_view language) {
  std::string out;
  for (const Token& token : lex(code, language)) out += "oCskni"[static_cast<int>(token.kind)];
  return out;
}

TEST(Highlight, KnowsCommentsStringsAndNames) {
  EXPECT_EQ(kinds("// a \"b\"\nint x = f(\"//\"); /* y */", "cpp"), "CnnonosooC");
  EXPECT_EQ(kinds("auto s = R\"(a \" b)\";", "cpp"), "nnoso");
  EXPECT_EQ(kinds("#include \"rose/core/error.h\"\n#include <span>", "cpp"), "kiks");
  EXPECT_EQ(kinds("return x;", "cuda"), "kno");
  EXPECT_EQ(kinds("x = 1  # why\n", "python"), "nooC");
  EXPECT_EQ(kinds("plain text", "text"), "");
}

TEST(Highlight, CoversAnyBytesInOrder) {
  rc::check([](const std::string& code) {
    std::size_t at = 0;
    for (const Token& token : lex(code, "cpp")) {
      RC_ASSERT(token.begin >= at);
      RC_ASSERT(token.end > token.begin);
      RC_ASSERT(token.end <= code.size());
      at = token.end;
    }
  });
}

std::vector<std::string> declared(std::string_view code) {
  std::vector<std::string> out;
  for (const Name& name : declarations(code)) out.push_back(name.kind + " " + name.qualified);
  return out;
}

TEST(Names, AreFoundWhereTheyAreDeclared) {
  EXPECT_THAT(
      declared(R"(#pragma once
namespace rose::core {
/// A comment with struct Nothing {
struct Forward;
class Pool final : public Base<int> {
 public:
  explicit Pool(int n) : n_{n}, m_(n) {}
  int size() const { return n_; }
  template <class F>
  void each(F&& f);
 private:
  int n_;
};
enum class Code : int { ok, bad };
using Row = std::span<const float>;
template <class T>
concept Number = std::integral<T>;
inline constexpr int tile = 128;
constexpr std::array words = {"a"};
std::string describe(const Pool& pool);
static void helper(std::vector<int> xs) { if (xs.empty()) return; call(xs); }
}  // namespace rose::core
#define ROSE_CHECK(x) (x)
)"),
      ElementsAre("type rose::core::Pool", "member rose::core::Pool::size",
                  "member rose::core::Pool::each", "type rose::core::Code", "alias rose::core::Row",
                  "concept rose::core::Number", "constant rose::core::tile",
                  "constant rose::core::words", "function rose::core::describe",
                  "function rose::core::helper", "macro ROSE_CHECK"));
}

TEST(Names, SurviveAnyBytes) {
  rc::check([](const std::string& code) { declarations(code); });
}

std::string told(std::string_view header) {
  return for_doxygen(header, [](std::size_t line) { return "line " + std::to_string(line); });
}

TEST(Comments, StandAboveOrBehindWhatTheySpeakOf) {
  EXPECT_EQ(told("#pragma once\n// One \\s of <T>, `a<b>`.\nint f();\nint g();\n\nint h();\n"),
            "#pragma once\n/// One \\\\s of \\<T\\>, `a<b>`.\nint f();\n"
            "/**  One \\\\s of \\<T\\>, `a<b>`. */ int g();\n\n/** line 6 */ int h();\n");
  EXPECT_EQ(told("// A heading\n\n/// Own.\nstruct X {\n  int a, b;  // two\n             // more\n"
                 "  int f() {  // a body\n    // within\n    return 1;\n  }\n};\n"),
            "// A heading\n\n/// Own.\nstruct X {\n  int a, b;  ///< two\n             ///< more\n"
            "  int f() {  // a body\n    // within\n    return 1;\n  }\n};\n");
  EXPECT_EQ(told("namespace n {\nstruct Ahead;\nstruct B {  // x = d q\n};\nint B::f() {}\n}\n"),
            "namespace n {\nstruct Ahead;\n/**  x = d q */ struct B {  // x = d q\n};\n"
            "int B::f() {}\n}\n");
}

TEST(Comments, KeepLinesOfAnyBytes) {
  rc::check([](const std::string& code) {
    const std::string out = told(code);
    RC_ASSERT(std::count(out.begin(), out.end(), '\n') ==
              std::count(code.begin(), code.end(), '\n'));
  });
}

TEST(XmlFiles, AreTreesWithTextAsItStands) {
  const XmlFile file(
      "<?xml version='1.0'?>\n<a x=\"1\" y='&lt;'>b<c/> d &amp;<!-- > --><e>f</e></a>\n");
  EXPECT_EQ(file.root().tag, "a");
  EXPECT_EQ(file.root().attribute("y"), "&lt;");
  EXPECT_EQ(file.root().text_of("e"), "f");
  EXPECT_EQ(file.root().all_text(), "b d &amp;f");
  EXPECT_EQ(decoded("a &lt; b &amp;amp; &quot;"), "a < b &amp; \"");
  for (const char* wrong : {"", "a", "<a>", "<a></b>", "<a", "</a>", "<a/><b/>"})
    EXPECT_THROW(XmlFile{wrong}, std::runtime_error) << wrong;
  rc::check([](const std::string& bytes) {
    try {
      const XmlFile any("<" + bytes + "></" + bytes + ">");
    } catch (const std::runtime_error&) {
    }
  });
}

TEST(Html, RelativeAddresses) {
  EXPECT_EQ(relative("index.html", "1-foundations/09-attention.html"),
            "1-foundations/09-attention.html");
  EXPECT_EQ(relative("1-foundations/09-attention.html", "1-foundations/05-tokenization.html#bpe"),
            "05-tokenization.html#bpe");
  EXPECT_EQ(relative("1-foundations/09-attention.html", "0-orientation/01-x.html"),
            "../0-orientation/01-x.html");
  EXPECT_EQ(relative("code/rose/core/error.h.html", "benches.html"), "../../../benches.html");
  EXPECT_EQ(relative("facts/index.html", "facts/index.html#by"), "#by");
  EXPECT_EQ(relative("1-foundations/09-attention.html", ""), "../");
}

TEST(Html, TemplatesSlugsAndEscapes) {
  EXPECT_EQ(filled("<a>{{x}}</a>{{y}}", {{"x", "1"}, {"y", "{{x}}"}}), "<a>1</a>{{x}}");
  EXPECT_THROW(filled("{{z}}", {}), std::runtime_error);
  EXPECT_EQ(slug("GPT-2, smallest model"), "gpt-2-smallest-model");
  EXPECT_EQ(slug("τ²-bench"), "tau2-bench");
  EXPECT_EQ(escaped("a < b & \"c\""), "a &lt; b &amp; &quot;c&quot;");
}

TEST(Records, APathGoesThroughObjectsAndLists) {
  const auto record =
      boost::json::parse(R"({"median": 3, "config": {"shapes": [{"us": 8}, {"us": 9}]}})")
          .as_object();
  ASSERT_NE(dig(record, "median"), nullptr);
  ASSERT_NE(dig(record, "config.shapes.1.us"), nullptr);
  EXPECT_EQ(*dig(record, "config.shapes.1.us"), 9);
  for (const char* wrong : {"", "mean", "median.x", "config.shapes.2.us", "config.shapes.-1.us",
                            "config.shapes.1x.us", "config.shapes.us"}) {
    EXPECT_EQ(dig(record, wrong), nullptr) << wrong;
  }
}

}  // namespace
}  // namespace weave
