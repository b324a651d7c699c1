#include "labels.h"

#include <array>
#include <filesystem>

#include "ast.h"
#include "code.h"
#include "html.h"
#include "text.h"

namespace weave {

std::string_view label_in_comment(std::string_view raw) {
  while (raw.ends_with('\n')) raw.remove_suffix(1);
  const std::string_view comment = tangle::trimmed(raw);
  if (!comment.starts_with("<!--") || !comment.ends_with("-->")) return {};
  const std::string_view inside = tangle::trimmed(comment.substr(4, comment.size() - 7));
  for (const std::string_view kind : {"eq:", "fig:", "tbl:"})
    if (inside.starts_with(kind) && inside.find(' ') == std::string_view::npos) return inside;
  return {};
}

std::string anchor_of_question(const Book& book, std::string_view id) {
  return (book.chunk(id) == nullptr ? "" : "about-") + std::string(id);
}

tangle::Span find_in(const Chapter& chapter, std::string_view words, std::string_view otherwise) {
  for (const std::string_view each : {words, otherwise}) {
    const std::size_t at = each.empty() ? std::string_view::npos : chapter.source->text.find(each);
    if (at != std::string_view::npos)
      return {chapter.source, static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at + each.size())};
  }
  return {chapter.source, 0, 0};
}

void Labels::read(const Book& book, const Chapter& chapter, const json::value& tree, tangle::Diagnostics& diagnostics) {
  std::map<std::string, Label, std::less<>>& labels = by_chapter_[chapter.name];
  const auto add = [&](std::string_view anchor, Label label, std::string_view written) {
    if (!anchor.empty() && !labels.emplace(std::string(anchor), std::move(label)).second)
      diagnostics.error("duplicate-label", find_in(chapter, written, anchor),
                        "'#" + std::string(anchor) + "' exists twice on this page");
  };
  std::array<int, 3> counts{};
  int checks = 0, exercises = 0;
  ast::walk(tree, [&](const json::value& node) {
    const std::string_view tag = ast::tag(node);
    if (tag == "RawBlock") {
      const std::string_view label = label_in_comment(view(ast::content(node).as_array()[1].as_string()));
      if (label.empty()) return;
      const std::size_t kind = label.starts_with("eq:") ? 0 : label.starts_with("fig:") ? 1 : 2;
      constexpr std::array kinds{Label::Kind::equation, Label::Kind::figure, Label::Kind::table};
      add(label, {kinds[kind], chapter.number + "." + std::to_string(++counts[kind])}, "<!-- " + std::string(label));
    } else if (tag == "Header") {
      add(ast::id_of(ast::content(node).as_array()[1]), {Label::Kind::heading, {}}, {});
    } else if (tag == "Div") {
      const json::value& attributes = ast::content(node).as_array()[0];
      const bool check = ast::has_class(attributes, "check"), exercise = ast::has_class(attributes, "exercise");
      const std::string anchor =
          ast::id_of(attributes).empty() ? std::string() : anchor_of_question(book, ast::id_of(attributes));
      if (check) add(anchor, {Label::Kind::check, std::to_string(++checks)}, "{.check #");
      if (exercise)
        add(anchor, {Label::Kind::exercise, chapter.number + "." + std::to_string(++exercises)}, "{.exercise #");
    }
  });
  for (const Fence& fence : chapter.fences) {
    if (fence.chunk != Fence::none) {
      const std::string anchor = anchor_of(book.chunks[fence.chunk], fence.part);
      add(anchor, {Label::Kind::chunk, {}}, "{#" + anchor);
    } else if (!fence.id.empty() && fence.role != "table") {
      add(fence.id, {Label::Kind::chunk, {}}, "{#" + fence.id);
    }
  }
}

const Label* Labels::find(const Chapter& chapter, std::string_view anchor) const {
  const auto page = by_chapter_.find(chapter.name);
  if (page == by_chapter_.end()) return nullptr;
  const auto found = page->second.find(anchor);
  return found == page->second.end() ? nullptr : &found->second;
}

std::vector<std::string_view> Labels::anchors(const Chapter& chapter) const {
  std::vector<std::string_view> all;
  if (const auto page = by_chapter_.find(chapter.name); page != by_chapter_.end())
    for (const auto& [anchor, label] : page->second) all.push_back(anchor);
  return all;
}

Target Linker::chapter_target(const Chapter& from, const Chapter& to, std::string_view fragment) const {
  Target target;
  target.chapter = &to;
  std::string address = to.page();
  if (!fragment.empty()) {
    target.label = labels_.find(to, fragment);
    if (target.label == nullptr) {
      target.error = "'" + to.name + ".md' has no '#" + std::string(fragment) + "'";
      const std::string near = tangle::did_you_mean(fragment, labels_.anchors(to));
      if (!near.empty()) target.error += "; " + near;
    }
    address += "#" + std::string(fragment);
  }
  target.href = relative(from.page(), address);
  return target;
}

Target Linker::resolve(const Chapter& from, std::string_view url) {
  const std::size_t colon = url.find(':'), hash = url.find('#');
  if (colon != std::string_view::npos && colon < std::min(hash, url.find('/'))) {
    Target target;
    target.href = url;
    target.external = true;
    return target;
  }
  const std::string_view path = url.substr(0, hash);
  const std::string_view fragment = hash == std::string_view::npos ? std::string_view{} : url.substr(hash + 1);
  if (path.empty()) return chapter_target(from, from, fragment);

  namespace fs = std::filesystem;
  const std::string there = (fs::path(from.source->path).parent_path() / path).lexically_normal().string();
  const std::string folder = from.source->path.substr(0, from.source->path.size() - from.name.size() - 3);  // "book/"
  if (there.starts_with(folder) && there.ends_with(".md")) {
    const Chapter* to = book_.chapter(there.substr(folder.size(), there.size() - folder.size() - 3));
    if (to != nullptr) return chapter_target(from, *to, fragment);
  }
  Target target;
  constexpr std::string_view outputs = "generated/";
  if (there.starts_with(outputs) && book_.output_by_path.contains(there.substr(outputs.size()))) {
    target.href = relative(from.page(), page_of_file(there.substr(outputs.size())));
  } else if (fs::is_directory(there)) {
    target.href = relative(from.page(), "files.html");
  } else if (fs::is_regular_file(there) && !there.starts_with("..")) {
    files_.insert(there);
    target.href = relative(from.page(), page_of_source(there));
  } else {
    target.error = "the link '" + std::string(url) + "' leads nowhere";
  }
  return target;
}

}  // namespace weave
