#include "uses.h"

#include "cache.h"
#include "files.h"
#include "json.h"
#include "names.h"

namespace weave {
namespace {

std::uint64_t key_of(std::uint64_t where, std::uint32_t line) {
  constexpr unsigned half = 32;
  return (where << half) | line;
}

}  // namespace

Uses::Uses(const Book& book, const std::string& index, const std::string& generated) {
  const std::optional<std::string> bytes = tangle::read_file(index);
  if (!bytes) return;
  const json::value parsed = json::parse(*bytes);
  for (const auto& [path, file] : object(parsed.as_object(), "files")) {
    const auto found = book.output_by_path.find(std::string_view(path.data(), path.size()));
    if (found == book.output_by_path.end()) continue;
    const Output& output = book.outputs[found->second];
    if (sha256(tangle::read_file(generated + "/" + output.path).value_or("")) != text(file.as_object(), "sha256"))
      continue;
    for (const json::value& each : list(file.as_object(), "uses")) {  // [line, offset, name, path, line there]
      const json::array& use = each.as_array();
      const auto line = static_cast<std::uint32_t>(use.at(0).as_int64());
      Meaning meaning{std::string(view(use.at(2).as_string())), static_cast<std::uint32_t>(use.at(1).as_int64())};
      if (const auto there = book.output_by_path.find(view(use.at(3).as_string()));
          there != book.output_by_path.end()) {
        meaning.output = there->second;
        meaning.line = static_cast<std::uint32_t>(use.at(4).as_int64());
      }
      by_output_[key_of(found->second, line)].push_back(meaning);
      const Run* run = run_at(output, line);
      if (run == nullptr || !run->body || run->chunk == Fence::none) continue;
      const ChunkPart& part = book.chunks[run->chunk].parts.at(run->part);
      by_chapter_[key_of(part.chapter, run->source_line + line - run->line)].push_back(std::move(meaning));
    }
  }
}

const Meaning* Uses::look_up(const Lines& lines, std::uint32_t where, std::uint32_t line, std::uint32_t offset,
                             std::string_view word) {
  const auto found = lines.find(key_of(where, line));
  if (found == lines.end()) return nullptr;
  for (const Meaning& each : found->second)
    if (each.offset == offset && each.name == word) return &each;
  return nullptr;
}

const Meaning* Uses::in_output(std::uint32_t output, std::uint32_t line, std::uint32_t offset,
                               std::string_view word) const {
  return look_up(by_output_, output, line, offset, word);
}

const Meaning* Uses::in_chapter(std::uint32_t chapter, std::uint32_t line, std::uint32_t offset,
                                std::string_view word) const {
  return look_up(by_chapter_, chapter, line, offset, word);
}

}  // namespace weave
