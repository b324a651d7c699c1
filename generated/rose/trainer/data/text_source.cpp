// Find where documents end.

#include "rose/trainer/data/text_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "rose/core/error.h"
#include "rose/core/json.h"

namespace rose::trainer {

namespace {

namespace fs = std::filesystem;

bool is_json_lines(const fs::path& path) {
  return path.extension() == ".jsonl" || path.extension() == ".ndjson";
}

void refuse_parquet(const fs::path& path) {
  if (path.extension() != ".parquet") return;
  throw core::Error(core::Code::unsupported, "Parquet files are not read")
      .in(path.string())
      .hint(
          "make JSON lines of it, with DuckDB for example: COPY (SELECT text FROM 'x.parquet') TO "
          "'x.jsonl' (FORMAT JSON)");
}

}  // namespace

TextSource::TextSource(const std::vector<fs::path>& inputs, TextSourceOptions options)
    : options_(std::move(options)) {
  for (const fs::path& input : inputs) {
    if (fs::is_directory(input)) {
      std::vector<fs::path> found;
      for (const auto& entry : fs::recursive_directory_iterator(input)) {
        const fs::path& path = entry.path();
        const auto extension = path.extension();
        if (entry.is_regular_file() &&
            (extension == ".txt" || extension == ".md" || is_json_lines(path)))
          found.push_back(path);
      }
      std::sort(found.begin(), found.end());
      files_.insert(files_.end(), found.begin(), found.end());
    } else {
      refuse_parquet(input);
      files_.push_back(input);
    }
  }
  if (files_.empty()) {
    throw core::Error(core::Code::not_found, "there is no text to read")
        .in(inputs.empty() ? "inputs" : inputs.front().string())
        .hint("name files, or folders with .txt, .md or .jsonl files");
  }
  for (const fs::path& file : files_) {
    if (!fs::is_regular_file(file))
      throw core::Error(core::Code::not_found, "there is no such file").in(file.string());
    total_ += static_cast<std::int64_t>(fs::file_size(file));
  }
}

// Go to a place in the input.
void TextSource::seek(std::int64_t file, std::uint64_t offset) {
  number_ = file;
  offset_ = offset;
  open_.reset();
  done_ = static_cast<std::int64_t>(offset);
  for (std::int64_t f = 0; f < file; ++f)
    done_ += static_cast<std::int64_t>(fs::file_size(files_[static_cast<std::size_t>(f)]));
}

// Take the next document.
bool TextSource::next(RawDocument& out) {
  for (; std::cmp_less(number_, files_.size()); ++number_, offset_ = 0, open_.reset()) {
    const fs::path& path = files_[static_cast<std::size_t>(number_)];
    if (!open_) open_ = std::make_shared<const core::MappedFile>(core::MappedFile::open(path));
    const std::string_view rest =
        open_->text().substr(std::min<std::size_t>(offset_, open_->text().size()));
    if (rest.empty()) continue;
    const bool json = is_json_lines(path);
    std::size_t size = rest.size(), next = rest.size();
    if (json) {
      size = std::min(rest.find('\n'), rest.size());
      next = std::min(size + 1, rest.size());
    } else if (!options_.delimiter.empty()) {
      const std::string line = options_.delimiter + "\n";
      for (std::size_t at = 0; (at = rest.find(line, at)) != rest.npos; ++at) {
        if (at > 0 && rest[at - 1] != '\n') continue;
        size = at;
        next = at + line.size();
        break;
      }
    }
    out = {open_, rest.substr(0, size), json, number_, offset_ + next};
    offset_ += next;
    done_ += static_cast<std::int64_t>(next);
    return true;
  }
  return false;
}

std::string RawDocument::text(const TextSourceOptions& options) const {
  if (!json) return std::string(bytes);
  if (bytes.find_first_not_of(" \t\r") == bytes.npos) return {};
  try {
    const core::json::value value = core::parse_json(bytes, "line");
    return std::string(
        core::get_string(core::as_object(value, "line"), options.text_field, "line"));
  } catch (const core::Error& error) {
    const auto line = 1 + std::count(file->text().data(), bytes.data(), '\n');
    throw core::Error(error.code(), error.message())
        .in(fmt::format("{}:{}", file->path().string(), line))
        .hint("each line of the file must be a JSON object with the document's text");
  }
}

}  // namespace rose::trainer
