#include "doxygen.h"

#include <charconv>
#include <filesystem>
#include <map>
#include <stdexcept>

#include "cache.h"
#include "comments.h"
#include "files.h"
#include "names.h"
#include "process.h"
#include "text.h"

namespace weave {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view release = "doxygen 1";  // of what this file and comments.cpp do with headers

void write(const fs::path& path, std::string_view bytes) {
  std::string trouble = tangle::make_folders(path.parent_path().string());
  if (trouble.empty()) trouble = tangle::write_file_atomic(path.string(), bytes);
  if (!trouble.empty()) throw std::runtime_error(trouble);
}

/// The chapter's line that became a line of an output, or nowhere.
tangle::Span in_chapter(const Book& book, const Output& output, std::uint32_t line) {
  const Run* run = run_at(output, line);
  if (run == nullptr || run->chunk == Fence::none) return {};
  const Chapter& chapter = book.chapters[book.chunks[run->chunk].parts.at(run->part).chapter];
  const std::uint32_t wanted = run->source_line + (run->body ? line - run->line : 0);
  std::size_t at = 0;
  for (std::uint32_t i = 1; i < wanted && at < chapter.source->text.size(); ++i)
    at = std::min(chapter.source->text.find('\n', at), chapter.source->text.size() - 1) + 1;
  return tangle::line_around(*chapter.source, static_cast<std::uint32_t>(at));
}

/// The title of the chunk that a line of an output comes from, as a sentence; empty when it has none.
std::string title_at(const Book& book, const Output& output, std::size_t line) {
  const Run* run = run_at(output, static_cast<std::uint32_t>(line));
  if (run == nullptr || run->chunk == Fence::none) return {};
  const Chunk& chunk = book.chunks[run->chunk];
  const std::string title(book.title_of(chunk));
  return title == chunk.id ? std::string() : title + ".";
}

/// "rose::C::D": a type within a type.
bool nested(std::string_view qualified) {
  const std::size_t last = qualified.rfind("::");
  if (last == std::string_view::npos || last == 0) return false;
  const std::size_t before = qualified.rfind("::", last - 1);
  const char initial = qualified[before == std::string_view::npos ? 0 : before + 2];
  return initial >= 'A' && initial <= 'Z';
}

/// "Member f(int) (function) of class rose::C is not documented." speaks of a member of a type, not of a namespace or file.
bool about_a_member(std::string_view words) {
  constexpr std::string_view compound = "Compound ", end = " is not documented.";
  if (!words.ends_with(end)) return false;
  if (words.starts_with(compound))
    return nested(words.substr(compound.size(), words.size() - compound.size() - end.size()));
  for (const std::string_view kind : {" (enumvalue) ", " (variable) "})  // their names say what they are
    if (words.find(kind) != std::string_view::npos) return true;
  for (const std::string_view owner : {" of class ", " of struct ", " of union "})
    if (words.find(owner) != std::string_view::npos) return true;
  return false;
}

}  // namespace

bool is_public_header(const Output& output) {
  return output.kind == "source" && output.path.starts_with("rose/") &&
         (output.path.ends_with(".h") || output.path.ends_with(".cuh"));
}

Documented document(const Book& book, const std::string& generated, const std::string& doxyfile,
                    const std::string& cache) {
  std::map<std::string, std::string> headers;
  for (const Output& output : book.outputs)
    if (is_public_header(output))
      headers[output.path] = for_doxygen(tangle::read_file(generated + "/" + output.path).value_or(""),
                                         [&](std::size_t line) { return title_at(book, output, line); });
  if (headers.empty()) return {};
  const std::optional<std::string> settings = tangle::read_file(doxyfile);
  if (!settings) throw std::runtime_error(doxyfile + ": cannot be read");
  std::string all = std::string(release) + *settings;
  for (const auto& [path, bytes] : headers) all.append(path).append("\n").append(bytes);
  const fs::path folder = fs::absolute(cache) / "doxygen", kept = folder / sha256(all);
  if (fs::exists(kept / "done")) return {kept.string()};

  fs::remove_all(folder);  // an older one serves nobody
  const fs::path input = kept / "in";
  for (const auto& [path, bytes] : headers) write(input / path, bytes);
  const auto setting = [](std::string_view key, const fs::path& value) {
    return std::string(key) + " = \"" + value.string() + "\"\n";
  };
  write(kept / "Doxyfile", *settings + setting("INPUT", input) + setting("STRIP_FROM_PATH", input) +
                               setting("OUTPUT_DIRECTORY", kept) + setting("GENERATE_TAGFILE", kept / "rosellm.tag") +
                               setting("WARN_LOGFILE", kept / "warnings.txt"));
  const Finished done = run_program({"doxygen", (kept / "Doxyfile").string()}, {}, {});
  if (done.status != 0) throw std::runtime_error("Doxygen could not be run (Debian: doxygen):\n" + done.error);
  write(kept / "done", "");
  return {kept.string()};
}

void report_warnings(const Documented& documented, const Book& book, tangle::Diagnostics& diagnostics) {
  if (documented.folder.empty()) return;
  const std::string warnings = tangle::read_file(documented.folder + "/warnings.txt").value_or("");
  const std::string input = documented.folder + "/in/";
  std::string last;
  for (std::string_view rest = warnings; !rest.empty();) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    constexpr std::string_view mark = ": warning: ";
    const std::size_t words = line.find(mark);
    if (words == std::string_view::npos || about_a_member(line.substr(words + mark.size()))) continue;
    if (last == line) continue;
    last = line;
    std::string_view place = line.substr(0, words);
    if (place.starts_with(input)) place.remove_prefix(input.size());
    const std::size_t colon = place.rfind(':');
    const auto found = book.output_by_path.find(place.substr(0, colon));
    std::uint32_t number = 0;
    if (colon != std::string_view::npos) std::from_chars(place.data() + colon + 1, place.data() + place.size(), number);
    const tangle::Span span =
        found == book.output_by_path.end() ? tangle::Span{} : in_chapter(book, book.outputs[found->second], number);
    diagnostics.error("doxygen", span, std::string(line.substr(words + mark.size())))
        .help("Doxygen reads the comments of generated/" + std::string(place));
  }
}

}  // namespace weave
