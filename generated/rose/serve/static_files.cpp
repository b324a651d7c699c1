// Serve a folder.

#include "rose/serve/static_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdint>

#include "rose/core/utf8.h"

namespace rose::serve {

namespace fs = std::filesystem;

namespace {

// Say what a file is by its name.
std::string_view content_type(const fs::path& path) {
  using Pair = std::pair<std::string_view, std::string_view>;
  static constexpr std::array types = {Pair{".html", "text/html; charset=utf-8"},
                                       Pair{".css", "text/css; charset=utf-8"},
                                       Pair{".js", "text/javascript; charset=utf-8"},
                                       Pair{".json", "application/json"},
                                       Pair{".svg", "image/svg+xml"},
                                       Pair{".png", "image/png"},
                                       Pair{".woff2", "font/woff2"},
                                       Pair{".txt", "text/plain; charset=utf-8"},
                                       Pair{".xml", "application/xml"},
                                       Pair{".pdf", "application/pdf"},
                                       Pair{".epub", "application/epub+zip"},
                                       Pair{".wasm", "application/wasm"},
                                       Pair{".webmanifest", "application/manifest+json"},
                                       Pair{".ico", "image/x-icon"},
                                       Pair{".md", "text/markdown; charset=utf-8"}};
  const std::string extension = path.extension().string();
  for (const auto& [ending, type] : types)
    if (ending == extension) return type;
  return "application/octet-stream";
}

// Read a Range header.
struct Range {
  std::uint64_t first = 0, last = 0;  // inclusive
  bool asked = false, possible = true;
};

Range parse_range(std::string_view text, std::uint64_t size) {
  Range range{0, size == 0 ? 0 : size - 1, false, true};
  constexpr std::string_view unit = "bytes=";
  if (!text.starts_with(unit) || text.find(',') != std::string_view::npos) return range;
  text.remove_prefix(unit.size());
  const auto dash = text.find('-');
  if (dash == std::string_view::npos) return range;
  const auto number = [](std::string_view digits, std::uint64_t& out) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
    return error == std::errc{} && end == digits.data() + digits.size();
  };
  std::uint64_t first = 0, last = 0;
  const std::string_view left = text.substr(0, dash), right = text.substr(dash + 1);
  if (left.empty()) {
    if (!number(right, last)) return range;
    range.asked = true;
    range.possible = last > 0 && size > 0;
    range.first = size - std::min(last, size);
    return range;
  }
  if (!number(left, first) || (!right.empty() && (!number(right, last) || last < first)))
    return range;
  range.asked = true;
  range.possible = first < size;
  range.first = first;
  if (!right.empty()) range.last = std::min(last, range.last);
  return range;
}

// Open a file, and know it.
class OpenFile {
 public:
  explicit OpenFile(const fs::path& path) : descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ >= 0 && fstat(descriptor_, &about_) != 0) about_.st_mode = 0;
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  bool regular() const { return descriptor_ >= 0 && S_ISREG(about_.st_mode); }
  std::uint64_t size() const { return static_cast<std::uint64_t>(about_.st_size); }
  std::string etag() const {
    return fmt::format("\"{:x}-{:x}-{:x}\"", about_.st_ino, about_.st_size,
                       about_.st_mtim.tv_sec * 1'000'000'000 + about_.st_mtim.tv_nsec);
  }
  std::string read(std::uint64_t first, std::uint64_t count) const {
    std::string out(count, '\0');
    std::size_t done = 0;
    while (done < out.size()) {
      const ssize_t n = pread(descriptor_, out.data() + done, out.size() - done,
                              static_cast<off_t>(first + done));
      if (n <= 0) break;
      done += static_cast<std::size_t>(n);
    }
    out.resize(done);
    return out;
  }

 private:
  int descriptor_;
  struct stat about_ {};
};

}  // namespace

// Decode a path once.
std::optional<std::string> percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    unsigned byte = 0;
    constexpr int hexadecimal = 16;
    if (i + 2 >= text.size()) return std::nullopt;
    const char* end = text.data() + i + 3;
    if (std::from_chars(text.data() + i + 1, end, byte, hexadecimal).ptr != end)
      return std::nullopt;
    out += static_cast<char>(byte);
    i += 2;
  }
  if (out.find('\0') != std::string::npos || !core::is_utf8(out)) return std::nullopt;
  return out;
}

StaticFiles::StaticFiles(const fs::path& folder) : folder_(fs::canonical(folder)) {}

// Answer for a file.
std::optional<HttpResponse> StaticFiles::get(const HttpRequest& request) const {
  const auto decoded = percent_decoded(request.path);
  if (!decoded || !decoded->starts_with('/') || decoded->find('\\') != std::string::npos)
    return std::nullopt;
  std::error_code error;
  const fs::path asked = folder_ / fs::path(decoded->substr(1)).relative_path();
  fs::path path = fs::canonical(asked, error);
  if (error) return std::nullopt;
  const auto within = std::mismatch(folder_.begin(), folder_.end(), path.begin(), path.end());
  if (within.first != folder_.end()) return std::nullopt;
  if (fs::is_directory(path, error)) {
    if (!decoded->ends_with('/')) return HttpResponse{301, {{"location", request.path + "/"}}, ""};
    path /= "index.html";
  }
  const OpenFile file(path);
  if (!file.regular()) return std::nullopt;
  Headers headers{{"etag", file.etag()}, {"cache-control", "no-cache"}, {"accept-ranges", "bytes"}};
  if (request.header("if-none-match") == file.etag())
    return HttpResponse{304, std::move(headers), ""};
  headers.emplace_back("content-type", content_type(path));
  const std::string_view if_range = request.header("if-range");
  const Range range = if_range.empty() || if_range == file.etag()
                          ? parse_range(request.header("range"), file.size())
                          : parse_range("", file.size());
  if (!range.asked) return HttpResponse{200, std::move(headers), file.read(0, file.size())};
  if (!range.possible)
    return HttpResponse{416, {{"content-range", fmt::format("bytes */{}", file.size())}}, ""};
  headers.emplace_back("content-range",
                       fmt::format("bytes {}-{}/{}", range.first, range.last, file.size()));
  return HttpResponse{206, std::move(headers),
                      file.read(range.first, range.last - range.first + 1)};
}

}  // namespace rose::serve
