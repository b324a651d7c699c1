#include "book.h"

#include <charconv>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "files.h"

namespace weave {
namespace {

constexpr std::int64_t book_json_version = 1;

std::uint32_t u32(const json::object& object, std::string_view key) {
  return static_cast<std::uint32_t>(integer(object, key));
}

std::string leading_number(std::string_view name) {
  std::size_t digits = 0;
  while (digits < name.size() && name[digits] >= '0' && name[digits] <= '9') ++digits;
  std::string_view number = name.substr(0, digits);
  while (number.size() > 1 && number.front() == '0') number.remove_prefix(1);
  return std::string(number);
}

Fence read_fence(const json::object& from) {
  Fence fence;
  fence.role = text(from, "role");
  fence.language = text(from, "language");
  fence.id = text(from, "id");
  fence.title = text(from, "title");
  fence.file = text(from, "file");
  fence.append = truth(from, "append");
  fence.replace = truth(from, "replace");
  fence.line = u32(from, "line");
  fence.begin = u32(from, "begin");
  fence.body_begin = u32(from, "body_begin");
  fence.body_end = u32(from, "body_end");
  fence.indent = u32(from, "indent");
  for (const json::value& each : list(from, "references"))
    fence.references.push_back({std::string(text(each.as_object(), "id")), u32(each.as_object(), "line")});
  fence.attributes = from;
  return fence;
}

void read_chapter(Book& book, const json::object& from) {
  Chapter chapter;
  chapter.name = text(from, "name");
  const std::string path(text(from, "path"));
  std::optional<std::string> bytes = tangle::read_file(path);
  if (!bytes) throw std::runtime_error(path + ": cannot be read");
  tangle::Source& source = book.sources.emplace_back(path, std::move(*bytes));
  source.order = static_cast<std::uint32_t>(book.sources.size());
  chapter.source = &source;
  chapter.front = object(from, "front");
  chapter.title = text(chapter.front, "title");
  for (const json::value& each : list(from, "fences")) chapter.fences.push_back(read_fence(each.as_object()));
  book.chapters.push_back(std::move(chapter));
}

void read_parts(Book& book, const json::object& from) {
  for (const json::value& each : list(from, "parts")) {
    const json::object& given = each.as_object();
    Part part{std::string(text(given, "id")), std::string(text(given, "title")), {}, {}};
    part.number = leading_number(part.id);
    if (part.number.empty()) part.number = "A";
    for (const json::value& name : list(given, "chapters")) {
      const auto found = book.chapter_by_name.find(view(name.as_string()));
      if (found == book.chapter_by_name.end()) continue;
      Chapter& chapter = book.chapters[found->second];
      chapter.part = static_cast<std::uint32_t>(book.parts.size());
      const std::string_view slug = std::string_view(chapter.name).substr(chapter.name.rfind('/') + 1);
      chapter.number = part.number + "." + leading_number(slug);
      part.chapters.push_back(found->second);
    }
    book.parts.push_back(std::move(part));
  }
}

void read_chunks(Book& book, const json::object& from) {
  for (const json::value& each : list(from, "chunks")) {
    const json::object& given = each.as_object();
    Chunk chunk{
        std::string(text(given, "id")), std::string(text(given, "role")), std::string(text(given, "file")), {}, {}, {}};
    for (const json::value& part : list(given, "parts")) {
      const json::object& p = part.as_object();
      const ChunkPart made{book.chapter_by_name.at(text(p, "chapter")), u32(p, "fence"), truth(p, "live")};
      Fence& fence = book.chapters[made.chapter].fences.at(made.fence);
      fence.chunk = static_cast<std::uint32_t>(book.chunks.size());
      fence.part = static_cast<std::uint32_t>(chunk.parts.size());
      chunk.parts.push_back(made);
    }
    book.chunks.push_back(std::move(chunk));
  }
  for (std::uint32_t i = 0; i < book.chunks.size(); ++i) book.chunk_by_id.emplace(book.chunks[i].id, i);
  std::uint32_t at = 0;
  for (const json::value& each : list(from, "chunks")) {
    for (const json::value& user : list(each.as_object(), "used_by"))
      book.chunks[at].used_by.push_back(book.chunk_by_id.at(view(user.as_string())));
    ++at;
  }
}

Run read_run(const Book& book, const json::array& from) {
  Run run;
  run.line = static_cast<std::uint32_t>(from.at(0).as_int64());
  run.lines = static_cast<std::uint32_t>(from.at(1).as_int64());
  const std::string_view kind = view(from.at(2).as_string());
  if (kind == "frame") return run;
  run.body = kind == "body";
  run.chunk = book.chunk_by_id.at(view(from.at(3).as_string()));
  run.part = static_cast<std::uint32_t>(from.at(4).as_int64());
  run.source_line = static_cast<std::uint32_t>(from.at(6).as_int64());
  return run;
}

void read_outputs(Book& book, const json::object& from) {
  for (const json::value& each : list(from, "outputs")) {
    const json::object& given = each.as_object();
    Output output{std::string(text(given, "path")), std::string(text(given, "kind")), {}};
    const auto index = static_cast<std::uint32_t>(book.outputs.size());
    for (const json::value& run : list(given, "map")) {
      output.runs.push_back(read_run(book, run.as_array()));
      const Run& made = output.runs.back();
      if (made.chunk == Fence::none || !made.body || made.part != 0) continue;
      std::vector<Landing>& landings = book.chunks[made.chunk].landings;
      if (landings.empty() || landings.back().output != index) landings.push_back({index, made.line});
    }
    book.outputs.push_back(std::move(output));
  }
  for (std::uint32_t i = 0; i < book.outputs.size(); ++i) book.output_by_path.emplace(book.outputs[i].path, i);
}

}  // namespace

void read_book(Book& book, std::string_view bytes) {
  const json::value parsed = json::parse({bytes.data(), bytes.size()});
  const json::object& from = parsed.as_object();
  if (text(from, "format") != "rosellm.book" || integer(from, "version") != book_json_version)
    throw std::runtime_error("this is not version 1 of rosellm.book: weave and tangle differ");
  book.title = text(from, "title");
  book.reader = text(from, "reader");
  for (const json::value& each : list(from, "chapters")) read_chapter(book, each.as_object());
  for (std::uint32_t i = 0; i < book.chapters.size(); ++i) book.chapter_by_name.emplace(book.chapters[i].name, i);
  read_parts(book, from);
  read_chunks(book, from);
  read_outputs(book, from);
}

std::string_view Book::title_of(const Chunk& chunk) const {
  for (const ChunkPart& part : chunk.parts)
    if (part.live && !fence(part).title.empty()) return fence(part).title;
  return chunk.id;
}

std::string anchor_of(const Chunk& chunk, std::uint32_t part) {
  return part == 0 ? chunk.id : chunk.id + "-" + std::to_string(part + 1);
}

std::string body_of(const Chapter& chapter, const Fence& fence) {
  std::string_view rest = chapter.source->text.substr(fence.body_begin, fence.body_end - fence.body_begin);
  std::string body;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end == std::string_view::npos ? rest.size() : end + 1);
    rest.remove_prefix(line.size());
    for (std::uint32_t i = 0; i < fence.indent && !line.empty() && line.front() == ' '; ++i) line.remove_prefix(1);
    body += line;
  }
  while (!body.empty() && body.back() == '\n') body.pop_back();
  return body;
}

}  // namespace weave
