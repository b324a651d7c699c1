// The bytes of a file, and places in them.
//
// Everything the tool knows about a chapter points into its bytes: nothing is copied while reading.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tangle {

/// One input file. `text` is a view of `bytes`, or of bytes that a caller keeps alive.
/// Sources stay where they are (spans hold their address), so they are neither copied nor moved.
struct Source {
  Source(std::string shown_path, std::string owned)
      : path(std::move(shown_path)), bytes(std::move(owned)), text(bytes) {}
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  std::string path;         ///< as written in messages
  std::string bytes;        ///< the contents
  std::string_view text;    ///< what is read
  std::uint32_t order = 0;  ///< position in reading order; messages are sorted by it
};

/// A byte range of a source. The default span means "nowhere in particular".
struct Span {
  const Source* source = nullptr;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;

  std::string_view text() const { return source ? source->text.substr(begin, end - begin) : std::string_view{}; }
};

/// `length` bytes from `offset` on.
inline Span span_at(const Source& source, std::size_t offset, std::size_t length) {
  return {&source, static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(offset + length)};
}

/// Line and column as people count them: from 1, columns in code points.
struct LineColumn {
  std::uint32_t line = 1;
  std::uint32_t column = 1;
};

LineColumn locate(const Source& source, std::uint32_t offset);

/// The whole line that holds `offset`, without its line end.
Span line_around(const Source& source, std::uint32_t offset);

}  // namespace tangle
