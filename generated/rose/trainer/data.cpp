// Read a corpus, draw windows.

#include "rose/trainer/data.h"

#include <fmt/format.h>

#include <algorithm>

#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/rng.h"

namespace rose::trainer {

// Keep the lines outside fences and front matter.
std::string prose_of(std::string_view markdown) {
  std::string prose;
  std::size_t fence = 0;  // backticks that opened the block we are in
  bool front = markdown.starts_with("---\n"), first = true;
  while (!markdown.empty()) {
    const std::size_t end = std::min(markdown.find('\n'), markdown.size() - 1) + 1;
    const std::string_view line = markdown.substr(0, end);
    markdown.remove_prefix(end);
    const std::size_t ticks = std::min(line.find_first_not_of('`'), line.size());
    if (front) {
      front = first || line != "---\n";
    } else if (fence > 0) {
      if (ticks >= fence) fence = 0;
    } else if (ticks >= 3) {
      fence = ticks;
    } else {
      prose += line;
    }
    first = false;
  }
  return prose;
}

std::string read_corpus(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  if (fs::is_regular_file(path)) return core::read_file(path);
  std::vector<fs::path> files;
  if (fs::is_directory(path)) {
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      if (entry.is_regular_file() && entry.path().extension() == ".md")
        files.push_back(entry.path());
    }
  }
  if (files.empty()) {
    throw core::Error(core::Code::not_found, "there is no text to train on")
        .in(path.string())
        .hint("name a text file, or a folder with .md files");
  }
  std::sort(files.begin(), files.end());
  std::string text;
  for (const fs::path& file : files) text += prose_of(core::read_file(file)) + "\n";
  return text;
}

void draw_windows(std::span<const std::int32_t> tokens, std::int64_t batch, std::int64_t context,
                  std::uint64_t seed, std::uint64_t step, Windows& out) {
  const auto length = static_cast<std::size_t>(context), count = static_cast<std::size_t>(batch);
  if (tokens.size() < length + 1) {
    throw core::Error(
        core::Code::invalid_argument,
        fmt::format("{} tokens are too few for windows of {} + 1", tokens.size(), context))
        .in("training data")
        .hint("train on more text, or with a shorter context");
  }
  out.ids.resize(count * length);
  out.targets.resize(count * length);
  for (std::size_t b = 0; b < count; ++b) {
    // One stream per window: whatever `below` consumes, windows cannot run into each other.
    core::Rng rng(seed, static_cast<std::uint64_t>(Stream::windows), (step * count + b) * 1024);
    const std::size_t start = rng.below(static_cast<std::uint32_t>(tokens.size() - length));
    const auto window = tokens.subspan(start, length + 1);
    std::copy(window.begin(), window.end() - 1,
              out.ids.begin() + static_cast<std::ptrdiff_t>(b * length));
    std::copy(window.begin() + 1, window.end(),
              out.targets.begin() + static_cast<std::ptrdiff_t>(b * length));
  }
}

}  // namespace rose::trainer
