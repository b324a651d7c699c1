// Front matter: which keys exist, and whether they agree with the book and with the chapter's chunks.
#include <algorithm>
#include <array>

#include "book.h"
#include "text.h"

namespace tangle {
namespace {

constexpr std::array<std::string_view, 11> known_keys = {"title",         "part",     "prerequisites", "unlocks",
                                                         "questions",     "tangles",  "links",         "benches",
                                                         "test_includes", "verified", "summary"};
constexpr std::array<std::string_view, 6> list_keys = {"prerequisites", "unlocks",       "questions",
                                                       "tangles",       "test_includes", "links"};

class Checker {
 public:
  Checker(const Book& book, std::size_t chapter, Diagnostics& diagnostics)
      : book_(book), chapter_(chapter), document_(book.chapters[chapter]), diagnostics_(diagnostics) {}

  void run() {
    if (!document_.has_front) {
      if (document_.source->text.starts_with("---\n")) return;  // told already: not closed
      diagnostics_.error("missing-front-matter", {document_.source, 0, 0}, "this chapter has no front matter")
          .help("begin with lines \"---\", \"title: …\", \"part: …\", \"tangles: […]\", \"---\"");
      return;
    }
    if (document_.front.kind != YamlNode::Kind::map) return;
    keys();
    if (document_.front.text("title").empty()) missing("title");
    part();
    prerequisites();
    tangles();
  }

 private:
  void missing(const std::string& key) {
    diagnostics_.error("missing-front-matter", {document_.source, 0, 3}, "the front matter has no \"" + key + "\"");
  }

  void keys() {
    for (std::size_t i = 0; i < document_.front.keys.size(); ++i) {
      const YamlNode& key = document_.front.keys[i];
      if (std::find(known_keys.begin(), known_keys.end(), key.scalar) == known_keys.end()) {
        Message& message = diagnostics_.error("unknown-front-matter", key.span, "unknown key \"" + key.scalar + "\"");
        const auto near = nearest(key.scalar, {known_keys.begin(), known_keys.end()});
        if (!near.empty()) message.help("did you mean " + join_or(near) + "?");
      }
      const bool list = std::find(list_keys.begin(), list_keys.end(), key.scalar) != list_keys.end();
      if (list) list_of_text(key, document_.front.items[i]);
    }
  }

  void list_of_text(const YamlNode& key, const YamlNode& node) {
    if (node.kind == YamlNode::Kind::map) {
      diagnostics_.error("bad-front-matter", node.span, "\"" + key.scalar + "\" is a list");
    }
    for (const YamlNode& item : node.items) {
      if (node.kind == YamlNode::Kind::map || item.kind == YamlNode::Kind::scalar) continue;
      diagnostics_.error("bad-front-matter", item.span, "this item of \"" + key.scalar + "\" is no text; quote it");
    }
  }

  void part() {
    const YamlNode* part = document_.front.find("part");
    if (!part || part->scalar.empty()) return missing("part");
    const std::string_view folder = document_.name.substr(0, document_.name.find('/'));
    const std::string_view word = folder.substr(folder.find('-') == std::string_view::npos ? 0 : folder.find('-') + 1);
    if (part->scalar == word || part->scalar == folder) return;
    diagnostics_.error("bad-front-matter", part->span, "this chapter lies in the part \"" + std::string(word) + "\"");
  }

  void prerequisites() {
    for (const YamlNode* name : document_.front.list("prerequisites")) {
      const auto found = std::find(book_.names.begin(), book_.names.end(), name->scalar);
      const auto index = static_cast<std::size_t>(found - book_.names.begin());
      if (found == book_.names.end()) {
        Message& message = diagnostics_.lint("unknown-prerequisite", name->span,
                                             "book.yaml lists no chapter \"" + name->scalar + "\"");
        const auto near = nearest(name->scalar, {book_.names.begin(), book_.names.end()});
        if (!near.empty()) message.help("did you mean " + join_or(near) + "?");
      } else if (index >= chapter_) {
        diagnostics_.error("late-prerequisite", name->span,
                           "a prerequisite comes earlier in reading order, this one does not");
      }
    }
  }

  /// `tangles` and the `file=` attributes must name the same files.
  void tangles() {
    const auto listed = document_.front.list("tangles");
    std::string produced;
    for (const Fence& fence : document_.fences) {
      const KeyValue* file = fence.role == Role::code ? fence.attributes.find("file") : nullptr;
      if (!file) continue;
      if (produced.find(file->value) == std::string::npos) produced += (produced.empty() ? "" : ", ") + file->value;
      const bool found =
          std::any_of(listed.begin(), listed.end(), [&](const YamlNode* node) { return node->scalar == file->value; });
      if (!found && !continues(*file)) {
        diagnostics_.lint("tangles-disagree", file->value_span, "this file is not in the chapter's \"tangles\"")
            .help("the front matter lists the files that begin here: tangles: [" + produced + "]");
      }
    }
    for (const YamlNode* node : listed) {
      const bool found = std::any_of(document_.fences.begin(), document_.fences.end(), [&](const Fence& fence) {
        return fence.role == Role::code && fence.attributes.value("file") == node->scalar;
      });
      if (!found)
        diagnostics_.lint("tangles-disagree", node->span, "no chunk of this chapter has file=\"" + node->scalar + "\"");
    }
  }

  /// Whether an earlier chapter begins this file, so that it is continued or replaced here.
  bool continues(const KeyValue& file) const {
    for (std::size_t i = 0; i < chapter_; ++i) {
      for (const Fence& fence : book_.chapters[i].fences) {
        if (fence.role == Role::code && fence.attributes.value("file") == file.value) return true;
      }
    }
    return false;
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
