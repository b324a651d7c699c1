#include "book.h"

#include <algorithm>

#include "files.h"
#include "text.h"

namespace tangle {
namespace {

bool is_chapter_name(std::string_view name, std::string_view part) {
  const std::size_t slash = name.find('/');
  return slash != std::string_view::npos && name.substr(0, slash) == part && is_id(part) &&
         is_id(name.substr(slash + 1));
}

void add_chapter(Book& book, std::string name, std::string path, std::string bytes, Diagnostics& diagnostics) {
  Source& source = book.sources.emplace_back(std::move(path), std::move(bytes));
  source.order = static_cast<std::uint32_t>(book.sources.size());
  book.names.push_back(std::move(name));
  book.chapters.push_back(parse_document(source, book.names.back(), diagnostics));
}

class ContentsReader {
 public:
  ContentsReader(Book& book, Diagnostics& diagnostics) : book_(book), diagnostics_(diagnostics) {}

  void run(std::string path, std::string bytes) {
    Source& source = book_.sources.emplace_back(std::move(path), std::move(bytes));
    const Span all{&source, 0, static_cast<std::uint32_t>(source.text.size())};
    if (first_invalid_utf8(source.text) != std::string_view::npos) {
      diagnostics_.error("invalid-utf8", {&source, 0, 0}, "this file is not valid UTF-8");
      return;
    }
    const YamlNode root = parse_yaml(all, diagnostics_);
    book_.title = root.text("title");
    const YamlNode* parts = root.find("parts");
    if (!parts || parts->kind != YamlNode::Kind::list) {
      diagnostics_.error("bad-contents", {&source, 0, 0}, "book.yaml needs a list of parts");
      return;
    }
    for (const YamlNode& part : parts->items) read_part(part);
    for (const PartOfBook& part : book_.parts) find_strays(part);
  }

 private:
  void read_part(const YamlNode& node) {
    PartOfBook part{std::string(node.text("id")), std::string(node.text("title")), {}};
    if (!is_id(part.id)) {
      diagnostics_.error("bad-contents", node.span, "a part needs an id, the name of its folder");
      return;
    }
    for (const YamlNode* chapter : node.list("chapters")) read_chapter(part, *chapter);
    book_.parts.push_back(std::move(part));
  }

  void read_chapter(PartOfBook& part, const YamlNode& node) {
    if (!is_chapter_name(node.scalar, part.id)) {
      diagnostics_.error("bad-contents", node.span, "a chapter of this part is written " + part.id + "/NN-slug");
      return;
    }
    if (std::find(book_.names.begin(), book_.names.end(), node.scalar) != book_.names.end()) {
      diagnostics_.error("bad-contents", node.span, "this chapter is listed twice");
      return;
    }
    std::string path = book_.folder + "/" + node.scalar + ".md";
    auto bytes = read_file(path);
    if (!bytes) {
      diagnostics_.error("missing-chapter", node.span, "there is no file " + path);
      return;
    }
    part.chapters.push_back(node.scalar);
    add_chapter(book_, node.scalar, std::move(path), std::move(*bytes), diagnostics_);
  }

  void find_strays(const PartOfBook& part) {
    for (const std::string& file : list_files(book_.folder + "/" + part.id)) {
      if (!file.ends_with(".md")) continue;
      const std::string name = part.id + "/" + file.substr(0, file.size() - 3);
      if (std::find(book_.names.begin(), book_.names.end(), name) != book_.names.end()) continue;
      const std::string path = book_.folder + "/" + name + ".md";
      Source& source = book_.sources.emplace_back(path, read_file(path).value_or(""));
      source.order = static_cast<std::uint32_t>(book_.sources.size());
      diagnostics_.error("unlisted-chapter", {&source, 0, 0}, "this chapter is not listed in book.yaml")
          .help("add \"- " + name + "\" where it belongs in " + book_.folder + "/book.yaml");
    }
  }

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
  for (const std::string& file : list_files(book.folder)) {
    if (!file.ends_with(".md")) continue;
    const std::string path = book.folder + "/" + file;
    auto bytes = read_file(path);
    if (!bytes) continue;
    part.chapters.push_back(file.substr(0, file.size() - 3));
    add_chapter(book, part.chapters.back(), path, std::move(*bytes), diagnostics);
  }
  if (book.chapters.empty()) {
    diagnostics.error("no-book", {}, "no book in \"" + folder + "\": neither book.yaml nor .md files")
        .help("run in the root of the checkout, or say --book DIR");
  }
  book.parts.push_back(std::move(part));
  return book;
}

Book with_texts(const Book& book, std::vector<ChapterText> texts, Diagnostics& diagnostics) {
  Book out;
  out.folder = book.folder;
  out.has_contents = book.has_contents;
  out.title = book.title;
  out.parts = book.parts;
  for (ChapterText& text : texts) {
    add_chapter(out, std::move(text.name), std::move(text.path), std::move(text.bytes), diagnostics);
  }
  if (out.has_contents) check_front_matter(out, diagnostics);
  return out;
}

int find_chapter(const Book& book, std::string_view name, Diagnostics& diagnostics) {
  int found = -1;
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < book.chapters.size(); ++i) {
    const std::string_view full = book.chapters[i].name;
    names.push_back(full);
    names.push_back(full.substr(full.rfind('/') + 1));
    if (full == name) return static_cast<int>(i);
    if (names.back() == name) found = found == -1 ? static_cast<int>(i) : -2;
  }
  if (found >= 0) return found;
  Message& message = diagnostics.error(
      "unknown-chapter", {},
      (found == -2 ? "more than one chapter is called \"" : "there is no chapter \"") + printable(name) + "\"");
  const auto near = nearest(name, names);
  if (!near.empty()) message.help("did you mean " + join_or(near) + "?");
  return -1;
}

}  // namespace tangle
