#include "book.h"

#include <algorithm>

#include "files.h"
#include "text.h"

namespace tangle {
namespace {

Source& add_source(Book& book, std::string path, std::string bytes) {
  Source& source = book.sources.emplace_back(std::move(path), std::move(bytes));
  source.order = static_cast<std::uint32_t>(book.sources.size());
  return source;
}

void add_chapter(Book& book, std::string name, std::string path, std::string bytes, Diagnostics& diagnostics) {
  const Source& source = add_source(book, std::move(path), std::move(bytes));
  book.names.push_back(std::move(name));
  book.chapters.push_back(parse_document(source, book.names.back(), diagnostics));
}

class ContentsReader {
 public:
  ContentsReader(Book& book, Diagnostics& diagnostics) : book_(book), diagnostics_(diagnostics) {}

  void run(std::string path, std::string bytes) {
    const Source& source = book_.sources.emplace_back(std::move(path), std::move(bytes));
    const Span top{&source, 0, 0};
    if (first_invalid_utf8(source.text) != std::string_view::npos) {
      return refuse(top, "this file is not valid UTF-8", "invalid-utf8");
    }
    const YamlNode root = parse_yaml(span_at(source, 0, source.text.size()), diagnostics_);
    book_.title = root.text("title");
    const YamlNode* parts = root.find("parts");
    if (!parts || parts->kind != YamlNode::Kind::list) return refuse(top, "book.yaml needs a list of parts");
    for (const YamlNode& part : parts->items) read_part(part);
    for (const PartOfBook& part : book_.parts) find_strays(part);
  }

 private:
  void refuse(Span where, std::string words, std::string_view code = "bad-contents") {
    diagnostics_.error(code, where, std::move(words));
  }

  void read_part(const YamlNode& node) {
    PartOfBook part{std::string(node.text("id")), std::string(node.text("title")), {}};
    if (!is_id(part.id)) return refuse(node.span, "a part needs an id, the name of its folder");
    for (const YamlNode* chapter : node.list("chapters")) read_chapter(part, *chapter);
    book_.parts.push_back(std::move(part));
  }

  void read_chapter(PartOfBook& part, const YamlNode& node) {
    const bool fits = node.scalar.starts_with(part.id + "/") && is_id(node.scalar.substr(part.id.size() + 1));
    if (!fits) return refuse(node.span, "a chapter of this part is written " + part.id + "/NN-slug");
    if (listed(node.scalar)) return refuse(node.span, "this chapter is listed twice");
    std::string path = book_.folder + "/" + node.scalar + ".md";
    auto bytes = read_file(path);
    if (!bytes) return refuse(node.span, "there is no file " + path, "missing-chapter");
    part.chapters.push_back(node.scalar);
    add_chapter(book_, node.scalar, std::move(path), std::move(*bytes), diagnostics_);
  }

  void find_strays(const PartOfBook& part) {
    for (const std::string& stem : stems_in(book_.folder + "/" + part.id, ".md")) {
      const std::string name = part.id + "/" + stem, path = book_.folder + "/" + name + ".md";
      if (listed(name)) continue;
      const Source& source = add_source(book_, path, read_file(path).value_or(""));
      diagnostics_.error("unlisted-chapter", {&source, 0, 0}, "this chapter is not listed in book.yaml")
          .help("add " + quoted("- " + name) + " where it belongs in " + book_.folder + "/book.yaml");
    }
  }

  bool listed(const std::string& name) const { return std::ranges::find(book_.names, name) != book_.names.end(); }

  Book& book_;
  Diagnostics& diagnostics_;
};

}  // namespace

Book read_book(const std::string& folder, Diagnostics& diagnostics) {
  Book book;
  book.folder = folder;
  while (book.folder.size() > 1 && book.folder.ends_with('/')) book.folder.pop_back();
  const std::string contents = book.folder + "/book.yaml";
  if (auto bytes = read_file(contents)) {
    book.has_contents = true;
    ContentsReader(book, diagnostics).run(contents, std::move(*bytes));
    check_front_matter(book, diagnostics);
    return book;
  }
  PartOfBook part;
  for (std::string& name : stems_in(book.folder, ".md")) {
    std::string path = book.folder + "/" + name + ".md";
    auto bytes = read_file(path);
    if (!bytes) continue;
    add_chapter(book, name, std::move(path), std::move(*bytes), diagnostics);
    part.chapters.push_back(std::move(name));
  }
  if (book.chapters.empty()) {
    diagnostics.error("no-book", {}, "no book in " + quoted(folder) + ": neither book.yaml nor .md files")
        .help("run in the root of the checkout, or say --book DIR");
  }
  book.parts.push_back(std::move(part));
  return book;
}

Book with_texts(const Book& book, std::vector<ChapterText> texts, Diagnostics& diagnostics) {
  Book out{book.folder, book.has_contents, book.title, book.parts, {}, {}, {}};
  for (ChapterText& text : texts) {
    add_chapter(out, std::move(text.name), std::move(text.path), std::move(text.bytes), diagnostics);
  }
  if (out.has_contents) check_front_matter(out, diagnostics);
  return out;
}

int find_chapter(const Book& book, std::string_view name, Diagnostics& diagnostics) {
  std::vector<int> found;  // chapters whose last part it is
  std::vector<std::string_view> names;
  for (int i = 0; i < static_cast<int>(book.names.size()); ++i) {
    const std::string_view full = book.names[static_cast<std::size_t>(i)];
    if (full == name) return i;
    const std::string_view last = full.substr(full.rfind('/') + 1);
    names.insert(names.end(), {full, last});
    if (last == name) found.push_back(i);
  }
  if (found.size() == 1) return found.front();
  diagnostics
      .error(
          "unknown-chapter", {},
          concat(found.empty() ? "there is no chapter " : "more than one chapter is called ", quoted(printable(name))))
      .help(did_you_mean(name, names));
  return -1;
}

}  // namespace tangle
