// Front matter: which keys exist, and whether they agree with the book and with the chapter's chunks.
#include <algorithm>
#include <array>

#include "book.h"
#include "text.h"

namespace tangle {
namespace {

constexpr std::array<std::string_view, 12> known_keys = {"title",   "part",          "difficulty", "prerequisites",
                                                         "unlocks", "questions",     "tangles",    "links",
                                                         "benches", "test_includes", "verified",   "summary"};
constexpr std::array<std::string_view, 6> list_keys = {"prerequisites", "unlocks",       "questions",
                                                       "tangles",       "test_includes", "links"};
constexpr std::array<std::string_view, 3> difficulties = {"introductory", "intermediate", "advanced"};

class Checker {
 public:
  Checker(const Book& book, std::size_t chapter, Diagnostics& diagnostics)
      : book_(book), chapter_(chapter), document_(book.chapters[chapter]), diagnostics_(diagnostics) {}

  void run() {
    const YamlNode& front = document_.front;
    if (!document_.has_front) {
      if (document_.source->text.starts_with("---\n")) return;  // told already: not closed
      diagnostics_.error("missing-front-matter", {document_.source, 0, 0}, "this chapter has no front matter")
          .help("begin with lines \"---\", \"title: …\", \"part: …\", \"tangles: […]\", \"---\"");
      return;
    }
    if (front.kind != YamlNode::Kind::map) return;
    for (std::size_t i = 0; i < front.keys.size(); ++i) key(front.keys[i], front.items[i]);
    if (front.text("title").empty()) missing("title");
    part();
    difficulty();
    for (const YamlNode* name : front.list("prerequisites")) prerequisite(*name);
    tangles();
  }

 private:
  void missing(std::string_view key) {
    diagnostics_.error("missing-front-matter", {document_.source, 0, 3}, "the front matter has no " + quoted(key));
  }

  void key(const YamlNode& key, const YamlNode& node) {
    if (std::ranges::find(known_keys, key.scalar) == known_keys.end()) {
      diagnostics_.error("unknown-front-matter", key.span, "unknown key " + quoted(key.scalar))
          .help(did_you_mean(key.scalar, {known_keys.begin(), known_keys.end()}));
    }
    if (std::ranges::find(list_keys, key.scalar) == list_keys.end()) return;
    if (node.kind == YamlNode::Kind::map) {
      diagnostics_.error("bad-front-matter", node.span, quoted(key.scalar) + " is a list");
      return;
    }
    for (const YamlNode& item : node.items) {
      if (item.kind == YamlNode::Kind::scalar) continue;
      diagnostics_.error("bad-front-matter", item.span, "this item of " + quoted(key.scalar) + " is no text; quote it");
    }
  }

  void part() {
    const YamlNode* part = document_.front.find("part");
    if (!part || part->scalar.empty()) return missing("part");
    const std::string_view folder = document_.name.substr(0, document_.name.find('/'));
    const std::string_view word = folder.substr(folder.find('-') + 1);  // all of it where there is no hyphen
    if (part->scalar == word || part->scalar == folder) return;
    diagnostics_.error("bad-front-matter", part->span, "this chapter lies in the part " + quoted(word));
  }

  void difficulty() {
    const YamlNode* given = document_.front.find("difficulty");
    if (!given || std::ranges::find(difficulties, given->scalar) != difficulties.end()) return;
    diagnostics_.error("bad-front-matter", given->span, "a difficulty is introductory, intermediate or advanced");
  }

  void prerequisite(const YamlNode& name) {
    const auto found = std::ranges::find(book_.names, name.scalar);
    if (found == book_.names.end()) {
      diagnostics_.lint("unknown-prerequisite", name.span, "book.yaml lists no chapter " + quoted(name.scalar))
          .help(did_you_mean(name.scalar, {book_.names.begin(), book_.names.end()}));
    } else if (static_cast<std::size_t>(found - book_.names.begin()) >= chapter_) {
      diagnostics_.error("late-prerequisite", name.span,
                         "a prerequisite comes earlier in reading order, this one does not");
    }
  }

  /// `tangles` and the `file=` attributes must name the same files.
  void tangles() {
    const auto listed = document_.front.list("tangles");
    std::string produced;
    for (const Fence& fence : document_.fences) {
      const KeyValue* file = fence.file();
      if (!file) continue;
      if (produced.find(file->value) == std::string::npos) {
        produced += concat(produced.empty() ? "" : ", ", file->value);
      }
      if (std::ranges::find(listed, file->value, &YamlNode::scalar) != listed.end() || continues(file->value)) continue;
      diagnostics_.lint("tangles-disagree", file->value_span, "this file is not in the chapter's \"tangles\"")
          .help("the front matter lists the files that begin here: tangles: [" + produced + "]");
    }
    for (const YamlNode* node : listed) {
      if (names_file(document_, node->scalar)) continue;
      diagnostics_.lint("tangles-disagree", node->span, "no chunk of this chapter has file=" + quoted(node->scalar));
    }
  }

  static bool names_file(const Document& document, std::string_view path) {
    return std::ranges::any_of(document.fences,
                               [&](const Fence& fence) { return fence.file() && fence.file()->value == path; });
  }

  /// Whether an earlier chapter begins this file, so that it is continued or replaced here.
  bool continues(std::string_view path) const {
    return std::any_of(book_.chapters.begin(), book_.chapters.begin() + static_cast<std::ptrdiff_t>(chapter_),
                       [&](const Document& document) { return names_file(document, path); });
  }

  const Book& book_;
  std::size_t chapter_;
  const Document& document_;
  Diagnostics& diagnostics_;
};

}  // namespace

void check_front_matter(const Book& book, Diagnostics& diagnostics) {
  for (std::size_t i = 0; i < book.chapters.size(); ++i) Checker(book, i, diagnostics).run();
}

}  // namespace tangle
